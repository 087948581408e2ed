"""What everything else needs: errors, arguments, evidence, targets. Imports nothing of tcsim."""
