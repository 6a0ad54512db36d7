package jpeg

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxSide is the longest side libjpeg writes (JPEG_MAX_DIMENSION, jmorecfg.h);
// PIL refuses anything longer.
const maxSide = 65500

// headerBytes is everything before the entropy-coded data of a three-component
// baseline file without optimised tables: SOI 2, JFIF APP0 18, two DQT of 69,
// SOF0 19, two DC DHT of 33, two AC DHT of 183, SOS 14.
const headerBytes = 2 + 18 + 2*69 + 19 + 2*33 + 2*183 + 14

// eoiBytes is the marker that ends the file.
const eoiBytes = 2

// Size returns the number of bytes of the file that PIL writes for Image.save(f, format="JPEG",
// quality=quality) with this picture.
//
// rgb holds width×height pixels, rows from top to bottom, three bytes R, G, B each, without padding
// (tight HWC), and is not modified. width and height are 1…65500, quality is 1…100; any other value
// is an error of class rewards.BadInput. Size allocates at most a few KiB, whatever the size of the
// picture.
func Size(rgb []byte, width, height, quality int) (int, error) {
	return size(context.Background(), rgb, width, height, quality)
}

// size is Size that gives up between two rows of MCUs when ctx ends, and lets others compute there,
// so that nobody waits for the rest of a 100-megapixel picture.
func size(ctx context.Context, rgb []byte, width, height, quality int) (int, error) {
	if err := check(rgb, width, height, quality); err != nil {
		return 0, err
	}
	c := newCounter(quality)
	for y := 0; y < height; y += mcuSide {
		if err := rewards.Yield(ctx); err != nil {
			return 0, fmt.Errorf("jpeg: stopped at row %d of %d: %w", y, height, err)
		}
		for x := 0; x < width; x += mcuSide {
			c.mcu(rgb, width, height, x, y)
		}
	}
	return headerBytes + c.bits.finish() + eoiBytes, nil
}

func check(rgb []byte, width, height, quality int) error {
	if width < 1 || height < 1 || width > maxSide || height > maxSide {
		return fmt.Errorf("%w: the picture is %d×%d, each side must be 1…%d", rewards.BadInput, width, height, maxSide)
	}
	// 3·65500² is below 2^34, so the product cannot overflow a 64-bit int; on
	// 32 bits the comparison is made in int64.
	if want := 3 * int64(width) * int64(height); int64(len(rgb)) != want {
		return fmt.Errorf("%w: %d×%d RGB needs %d bytes, got %d", rewards.BadInput, width, height, want, len(rgb))
	}
	if quality < 1 || quality > 100 {
		return fmt.Errorf("%w: quality %d is outside 1…100", rewards.BadInput, quality)
	}
	return nil
}
