# Functions of quickstart.sh and of the test scripts; sourced, not run.

# install_missing PACKAGE...: installs the packages that the system lacks.  A tool from another source, such as a newer
# cmake in the path, counts as installed.
install_missing() {
  missing=
  for package; do
    case $package in
      g++ | cmake | make | git | debootstrap | ccache) command -v "$package" > /dev/null && continue ;;
    esac
    case $(dpkg-query -W -f '${Status}' "$package" 2> /dev/null) in
      *' installed') ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0
  if ! command -v apt-get > /dev/null; then
    echo "no apt-get here: install these packages (Debian's names):$missing, then run this again" >&2
    return 1
  fi
  root=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || {
      echo "run as root, or install sudo, or install these packages yourself:$missing" >&2
      return 1
    }
    root=sudo
  fi
  echo "installing:$missing"
  # Twice, because a mirror may drop a connection.
  $root apt-get update -qq || $root apt-get update -qq || return 1
  # shellcheck disable=SC2086
  set -- $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends -o Dpkg::Use-Pty=0 $missing
  "$@" > /dev/null || "$@"
}

library_packages="g++ cmake make libopenblas-pthread-dev libtbb-dev libssl-dev nlohmann-json3-dev libtomlplusplus-dev"
library_packages="$library_packages libcli11-dev libpcre2-dev libsentencepiece-dev zlib1g-dev libstb-dev"
test_packages="doctest-dev python3"  # for scripts in tests/cases that make large files
