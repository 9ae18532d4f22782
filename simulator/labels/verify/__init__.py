"""Labels in photographs and scans: which are there, which are missing, double or foreign."""
