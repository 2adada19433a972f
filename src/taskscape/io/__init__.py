"""Files: written beside their place and renamed, never over a user's own, and verified on reading.

Arrays in safetensors, values in JSON, tables in Parquet and CSV; never a pickle.
"""
