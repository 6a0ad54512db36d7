package main

import (
	"fmt"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/bombs" //nolint:depguard // the suite measures what they cost others
)

const lineBomb = "Decompression bombs, 16 at a time of each (WebP groups, PNG16 interlaced, 64-scan JPEG, 65535², zlib tails): " +
	"a neighbour keeps ≥ 0.8 of its throughput beside an equal CPU burner"

// bombSide is that of the largest PNG: the most that the defaults allow.
const bombSide = 4096

// overBombs is what pictures that are small as files and large as work cost others.
func overBombs() Suite {
	s := Suite{
		Name: "bombs", Apart: true,
		About: fmt.Sprintf("As in isolation, embedded: a healthy run beside one whose pictures are small as files and large as work, %d in flight, and beside programs that use as many cores. "+
			"webp_groups is a lossless WebP of 2,600 groups of Huffman trees, png16_interlaced 4096² pixels of 16 bits, interlaced, jpeg_scans 64 scans of 2048² pixels, png_65535 a header that "+
			"says 65535², zlib_tail 256 MB behind the image.", failingInFlight),
	}
	for _, kind := range []string{"webp_groups", "png16_interlaced", "jpeg_scans", "png_65535", "zlib_tail"} {
		s.Experiments = append(s.Experiments, besideExperiment(layout{name: "bombs"}, failure{name: kind, bomb: kind}))
	}
	return s
}

// bombPicture is a bomb as a sample has it.
func bombPicture(kind string) *rewards.Media {
	file := bombs.All(bombSide)[kind]()
	return &rewards.Media{Kind: rewards.Image, Encoding: media.Sniff(file), DType: "U8", Shape: []int{len(file)}, Data: file}
}
