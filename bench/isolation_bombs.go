package main

import (
	"github.com/rewardloop/rewardloop/internal/bombs"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

const lineBomb = "Decompression bombs, 16 at a time of each (WebP groups, PNG16 interlaced, 64-scan JPEG, 65535², zlib tails): " +
	"a neighbour keeps ≥ 0.8 of its throughput beside an equal CPU burner"

// bombSide is that of the largest PNG: the most that the defaults allow.
const bombSide = 4096

// bombed are the runs whose samples are bombs.
func bombed() []failure {
	var all []failure
	for _, kind := range []string{"webp_groups", "png16_interlaced", "jpeg_scans", "png_65535", "zlib_tail"} {
		all = append(all, failure{name: "bomb_" + kind, bomb: kind})
	}
	return all
}

// bombPicture is a bomb as a sample has it.
func bombPicture(kind string) *rewards.Media {
	file := bombs.All(bombSide)[kind]()
	return &rewards.Media{Kind: rewards.Image, Encoding: media.Sniff(file), DType: "U8", Shape: []int{len(file)}, Data: file}
}
