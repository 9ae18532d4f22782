"""What reports of checks, runs and demonstrations are made of: one self-contained HTML file each, and JUnit XML."""
