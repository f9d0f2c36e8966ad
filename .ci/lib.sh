# What the jobs of CI share; each sources this file first. Bash, on Debian, as root where packages are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
export CI=true DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1

JOB=$(basename "$0")
WORK="$PWD/.cache/ci/$JOB"
rm -rf "$WORK"
mkdir -p "$WORK"

SLOWEST=--durations=25
SERVERS=(redis-server memcached rabbitmq-server mariadbd postgres java zookeeper)

fail() {
    printf 'CI: %s\n' "$*" >&2
    exit 1
}

# The time of each step, printed again at the end; .ci/run collects the times of all jobs
TIMES="$WORK/times"
: >"$TIMES"
trap 'printf "%5d s  %s in all\n" "$SECONDS" "ci-$JOB" >>"$TIMES"; printf "\n"; cat "$TIMES"' EXIT

# step "heading" command...: what runs, and how long it took
step() {
    local heading=$1 start=$SECONDS
    shift
    printf '\n=== %s\n' "$heading"
    "$@"
    printf '%5d s  %s\n' "$((SECONDS - start))" "$heading" | tee -a "$TIMES"
}

# needs PROGRAM...: installs the packages of Debian that have them, where this machine lacks them
needs() {
    local program missing=()
    for program in make python3 venv "$@"; do
        has "$program" && continue
        case $program in
            venv) missing+=(python3-venv) ;;
            chromium) missing+=(chromium fonts-dejavu-core) ;;
            mariadbd) missing+=(mariadb-server) ;;
            postgres) missing+=(postgresql) ;;
            java) missing+=(default-jre-headless) ;;
            *) missing+=("$program") ;;
        esac
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "Nothing is missing."
        return
    fi
    echo "Installing ${missing[*]} ..."
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

has() {
    case $1 in
        venv) python3 -c 'import ensurepip, venv' ;;
        postgres) compgen -G "/usr/lib/postgresql/*/bin/postgres" || command -v postgres ;;
        zookeeper) test -e /usr/share/java/zookeeper.jar ;;
        *) command -v "$1" ;;
    esac >/dev/null 2>&1
}
