#!/usr/bin/env bash
# Takes a backup of companion, verifies it, keeps the newest ones, and copies it off site. For companion-backup.timer, and
# for the service `backup` of compose.yml. It reads the settings of the service, and:
#
#   BACKUP_DIR    where backups are kept (/var/backups/companion)
#   BACKUP_KEEP   how many are kept, here and in the bucket (14)
#   BACKUP_EVERY  seconds between two; without it one is taken, and that is all
#
# On PostgreSQL it takes pg_dump, pg_restore and tar, of the server's version or newer. A copy goes into the bucket of images
# (IMAGES_S3_BUCKET), if there is one.
set -euo pipefail
umask 077
dir=${BACKUP_DIR:-/var/backups/companion}
keep=${BACKUP_KEEP:-14}
data=${DATA_DIR:-data}

# As the service has it: in the variable, in a file, or in a credential of systemd. It stays out of DATABASE_URL, which may be
# exported and blank: `companion` refuses a secret that is set twice.
url=${DATABASE_URL:-}
if [ -z "${url//[[:space:]]/}" ]; then
  url=
  credential=${CREDENTIALS_DIRECTORY:-}/DATABASE_URL
  if [ -n "${DATABASE_URL_FILE:-}" ]; then
    url=$(cat "$DATABASE_URL_FILE")
  elif [ -n "${CREDENTIALS_DIRECTORY:-}" ] && [ -e "$credential" ]; then
    url=$(cat "$credential")
  fi
  url=${url%$'\r'}
fi

# The password of the URL goes into a variable: others see the arguments of a process.
dump() {
  user=${url#*://}
  user=${user%%@*}
  case $url in
    *://*:*@*)
      PGPASSWORD=$(printf '%b' "$(printf '%s' "${user#*:}" | sed 's/%/\\x/g')")
      export PGPASSWORD
      pg_dump --format=custom --file="$1" --dbname="${url%%://*}://${user%%:*}@${url#*@}"
      unset PGPASSWORD
      ;;
    *) pg_dump --format=custom --file="$1" --dbname="$url" ;;
  esac
}

take() {
  name=companion-$(date -u +%Y-%m-%dT%H%M%SZ)
  file=$dir/$name.tar
  case ${url:-sqlite:} in
    postgres*)
      stage=$(mktemp -d "$dir/.stage-XXXXXX")
      trap 'rm -rf "$stage"' EXIT
      # Alarms that are in both are stored once; ones in neither would be lost.
      for part in alarms.journal alarms.refused erasures.list; do
        if [ -e "$data/$part" ]; then cp "$data/$part" "$stage/"; fi
      done
      dump "$stage/companion.dump"
      # Reads all of it.
      pg_restore --file=/dev/null "$stage/companion.dump"
      # Images never change: those that the dump does not know do no harm.
      if [ -d "$data/images" ]; then cp -R "$data/images" "$stage/"; fi
      (cd "$stage" && find . -type f ! -name SHA256SUMS -exec sha256sum {} + >SHA256SUMS)
      tar --create --file="$file.new" --directory="$stage" .
      rm -rf "$stage"
      trap - EXIT
      mkdir "$dir/.check-$$"
      tar --extract --file="$file.new" --directory="$dir/.check-$$"
      (cd "$dir/.check-$$" && sha256sum --check --quiet SHA256SUMS)
      rm -rf "$dir/.check-$$"
      mv "$file.new" "$file"
      ;;
    *)
      companion backup "$file"
      companion restore --verify "$file"
      ;;
  esac
  find "$dir" -maxdepth 1 -name 'companion-*.tar' | sort -r | tail -n +$((keep + 1)) | xargs -r rm -f
  # In the loop, a bucket that does not take it is asked again until the next one is due.
  until companion store-backup "$file" --keep "$keep"; do
    [ $((SECONDS + 300)) -lt "${BACKUP_STORE_WITHIN:-0}" ]
    sleep 300
  done
}

mkdir -p "$dir"
if [ -n "${BACKUP_EVERY:-}" ]; then
  # Each one in a process of its own: in a condition, bash would go on after a step that fails. A failed one is tried again
  # sooner; the age of the last one is in the metrics.
  while true; do
    if BACKUP_STORE_WITHIN=$BACKUP_EVERY BACKUP_EVERY='' bash "$0"; then sleep "$BACKUP_EVERY"; else sleep 300; fi
  done
fi
# Leftovers of an earlier run that was cut off.
rm -rf "$dir"/.stage-* "$dir"/.check-* "$dir"/companion-*.tar.new
take
