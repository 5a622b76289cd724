"""The wire between trainer, node and daemon; stdlib only, the one package all sides import."""
