"""What all of Tenure's processes have in common: framed bytes between them, and a few calls into the kernel."""
