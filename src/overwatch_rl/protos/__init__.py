"""Generated messages of the services that speak gRPC."""
