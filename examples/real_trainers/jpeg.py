"""flow_grpo's jpeg_compressibility for one picture, as a reward function of the loop."""

import io

from PIL import Image


def compute_score(solution_image):
    """Returns -(kB of the JPEG of quality 95) / 500; solution_image is uint8 [3, height, width]."""
    buffer = io.BytesIO()
    Image.fromarray(solution_image.transpose(1, 2, 0)).save(buffer, format="JPEG", quality=95)
    return -(buffer.tell() / 1000) / 500
