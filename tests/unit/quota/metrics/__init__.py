"""What quota counts, under the names that dashboards for Kueue ask for."""
