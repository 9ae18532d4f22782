"""From a proven symbol to what a printer takes, at true size."""
