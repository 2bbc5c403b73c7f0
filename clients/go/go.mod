module tributary

go 1.21
