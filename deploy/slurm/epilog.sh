#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Tells the owner of a job that failed, in one line, why. In slurm.conf:
#
#   EpilogSlurmctld=/etc/slurm/rackpulse/epilog.sh
#
# It runs once for each job on the controller, also when the job's node is dead.
# It never holds a job: it returns at once, asks a moment later (leases, scrapes
# and rules need it to show what happened), up to three times while the job
# completes or data is missing, gives up a question after RACKPULSE_LIMIT, and
# always exits 0. Epilog= in its place asks from every node of the job.
#
# Settings, in epilog.conf beside this file (a shell script; all may be left out):
#   RACKPULSE          the program; default: rackpulse
#   RACKPULSE_ARGS     how to reach store and site, such as
#                      "--prometheus.url=http://prom:9090 --registry.url=http://reg:9401"
#   RACKPULSE_DELAY    seconds before it asks; default 75
#   RACKPULSE_LIMIT    seconds that the question may take; default 5
#   RACKPULSE_LOG      file that the line is added to; default: none
#   RACKPULSE_COMMENT  yes: the line becomes the job's AdminComment in the
#                      accounting (sacct -j JOB -o AdminComment); default: no
# The line goes to the system's log, too (tag rackpulse-epilog).

# Slurm gives its scripts no PATH to hand on.
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH
RACKPULSE=rackpulse RACKPULSE_ARGS="" RACKPULSE_DELAY=75 RACKPULSE_LIMIT=5 RACKPULSE_LOG="" RACKPULSE_COMMENT=no
conf=$(dirname "$0")/epilog.conf
# shellcheck source=/dev/null
[ -r "$conf" ] && . "$conf"

job=${SLURM_JOB_ID:-}
[ -n "$job" ] || exit 0
# A task of an array by its own name: the number alone is the whole array's.
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}

tell() {
  # Asked again where data is missing, or the job is not through its end yet.
  for _ in 1 2 3; do
    sleep "$RACKPULSE_DELAY"
    # shellcheck disable=SC2086 # several arguments are wanted
    line=$(timeout -k 1 "$RACKPULSE_LIMIT" "$RACKPULSE" explain --job "$job" --failed --brief $RACKPULSE_ARGS 2>/dev/null)
    # 3: no answer; what takes longer than its limit is not asked again.
    [ $? -eq 3 ] && [ -z "$line" ] || break
  done
  [ -n "$line" ] || return
  [ -z "$RACKPULSE_LOG" ] || echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $line" >> "$RACKPULSE_LOG"
  logger -t rackpulse-epilog -- "$line"
  [ "$RACKPULSE_COMMENT" != yes ] || timeout -k 1 "$RACKPULSE_LIMIT" sacctmgr -i modify job where jobid="$SLURM_JOB_ID" set AdminComment="$line"
}

# Detached in a session of its own, with none of Slurm's pipes open. Slurm kills
# the process group of a script that ends, so this one ends when the other has
# left the group: it closes the pipe then.
if [ "${RACKPULSE_TELL:-}" = now ]; then
  exec >/dev/null
  tell
else
  : "$(RACKPULSE_TELL=now setsid "$0" </dev/null 2>/dev/null &)"
fi
exit 0
