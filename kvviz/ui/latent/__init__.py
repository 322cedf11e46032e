"""The parts of the Latent attention page."""
