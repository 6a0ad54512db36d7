"""Creates the database of the example: make_db.py <folder>"""

import pathlib
import sqlite3
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
path = folder / "shop.sqlite"
path.unlink(missing_ok=True)
db = sqlite3.connect(path)
db.executescript("""
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total REAL);
    INSERT INTO customers VALUES (1, 'Ada', 'Lund'), (2, 'Bo', 'Lund'), (3, 'Cy', 'Oslo');
    INSERT INTO orders VALUES (1, 1, 30.0), (2, 1, 12.5), (3, 2, 8.0), (4, 3, 99.0);
""")
db.close()
