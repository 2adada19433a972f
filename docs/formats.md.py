s=open('formats.md').read()
s=s.replace('''What taskscape writes, so that other programs can read it. Tables are Parquet, CSV or JSON; arrays are
[safetensors](https://github.com/huggingface/safetensors); never a pickle. Parquet files of taskscape carry a header, JSON under the
key `taskscape` of the schema's metadata: `what` the file is, its `format`, and what it belongs to.''','''Tables are Parquet, CSV or JSON; arrays are [safetensors](https://github.com/huggingface/safetensors); never a pickle.
Parquet files of taskscape carry a header, JSON under the key `taskscape` of the schema's metadata: `what` the file is, its
`format`, and what it belongs to.''')
open('formats.md','w').write(s)
