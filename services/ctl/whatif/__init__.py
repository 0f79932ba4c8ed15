"""`sluice simulate` and `sluice plan`: what would happen. They read, and write nothing anywhere."""
