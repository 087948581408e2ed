"""What everything else needs: errors, arguments, evidence, targets, versions. It imports nothing else of tcsim."""
