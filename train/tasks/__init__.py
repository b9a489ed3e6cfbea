"""What is evaluated, one file each."""
