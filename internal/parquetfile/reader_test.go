package parquetfile_test

import (
	"os"
	"testing"
	"github.com/rewardloop/rewardloop/internal/parquetfile"
)
func TestX(t *testing.T) {
	f, _ := os.Open("/tmp/hf/hf.parquet")
	i, _ := f.Stat()
	r, err := parquetfile.Open(f, i.Size())
	if err != nil { t.Fatal(err) }
	t.Log(r.Columns(), r.Rows())
	for {
		row, err := r.Next()
		t.Log(row, err)
		if err != nil { break }
	}
	t.Log(r.Seek(1))
	row, err := r.Next()
	t.Log(row["id"], err)
}
