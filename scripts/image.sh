#!/usr/bin/env bash
# image.sh VERSION COMMIT ARCHES FOLDER builds the image of the Dockerfile for the processors of a release with Docker's buildx: into
# FOLDER as an OCI archive or, where IMAGE names a repository of a registry, into that, with the tags VERSION and, of a release that is no
# development version, latest. Without buildx, or with IMAGE=off, it says so and builds none. SOURCE is the address of the source that the image names.
# Processors other than this machine's are emulated, which the kernel must be set up for (qemu-user-static, binfmt): an hour on
# two cores, for a program that is compiled by an emulated compiler.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=$1 commit=$2 arches=$3 out=$4
no() {
	say "no image was built: $*"
	exit 0
}
[ "${IMAGE:-}" != off ] || no "IMAGE is off"
docker buildx version >/dev/null 2>&1 || no "docker with buildx is not here (make docker-check builds one without it, for this machine)"
docker info >/dev/null 2>&1 || no "docker's engine does not answer"

platforms=$(for arch in $arches; do echo "linux/$arch"; done | paste -sd,)
created=$(date -u -d "@${SOURCE_DATE_EPOCH:-1577836800}" +%Y-%m-%dT%H:%M:%SZ)
arguments=(--platform "$platforms" --build-arg "VERSION=$version" --build-arg "REVISION=$commit" --build-arg "CREATED=$created" --build-arg "SOURCE=${SOURCE:-}")
# A tag of a registry has no plus sign.
tag=${version//+/-}
if [ -n "${IMAGE:-}" ]; then
	arguments+=(--tag "$IMAGE:$tag" --push)
	[[ $version == *dev* ]] || arguments+=(--tag "$IMAGE:latest")
else
	arguments+=(--tag "rewardloop:$tag" --output "type=oci,dest=$out/rewardloop-$version-image.tar")
fi
say "the image for $platforms"
docker buildx build "${arguments[@]}" .
