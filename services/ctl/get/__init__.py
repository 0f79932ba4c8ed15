"""`sluice get`: what the streams say, as a table or as objects, without any access to Kubernetes."""
