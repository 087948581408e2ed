# Check or run one kernel on several archs: COMMAND FILE LAUNCH ARCHS FOLDER from the environment. Of `check` a SARIF log of each arch is left in FOLDER.
# Exit status: that of tcsim; of several archs the largest.
set -u
mkdir -p "$FOLDER"
status=0
for arch in $ARCHS; do
    given=("$COMMAND" "$FILE" --arch "$arch")
    [ -z "$LAUNCH" ] || given+=(--launch "$LAUNCH")
    [ "$COMMAND" != check ] || given+=(--sarif "$FOLDER/$arch.sarif")
    echo "tcsim ${given[*]}"
    own=0
    tcsim "${given[@]}" || own=$?
    [ "$own" -le "$status" ] || status=$own
done
exit "$status"
