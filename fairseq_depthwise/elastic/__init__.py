"""Training on processes and machines that come and go: ``train --elastic``, docs/many_machines.md."""
