"""Names that people know from other libraries, and what to write instead. Errors suggest it; the
names themselves are never accepted.

The tables are data. `docs/coming-from.md` shows the same words side by side.
"""

from __future__ import annotations

_COLUMN = "derive(y=function) for a column, map_rows(function) for whole rows"
_LOADER = "one loader() reused: each `for batch in loader` is the next epoch"
_WORKERS = "loader(workers=…), where 'auto' is the default"
_NOT_NEEDED = "nothing: the loader prefetches by itself, within loader(memory=…)"
_SHUFFLE = "shuffle(seed=0) on the pipeline, before batch"
_COUNT = "batch(n) on the pipeline; loader() takes no batch size"
_ALL = "list(loader) of pipeline.loader(), or head(n) for the first ones"
_SORT = "a source that is sorted; tables keep rows sorted, sv.Table.create(…, time='ts')"
_GROUP = (
    "sv.Table.create(…, group='x'), which keeps the rows of a group together, and "
    "shuffle(by='x') on what it reads"
)

METHODS = {
    "transform": _COLUMN,
    "map": _COLUMN, "apply": _COLUMN, "with_columns": _COLUMN, "with_column": _COLUMN,
    "assign": _COLUMN, "add_column": _COLUMN, "map_dict": _COLUMN,
    "map_batches": "derive(y=function) after batch(n), or with a function marked @sv.batched",
    "flat_map": "derive(items=function).explode('items')",
    "repeat": _LOADER, "set_epoch": f"loader.set_epoch(n) of {_LOADER}",
    "state_dict": f"loader.state_dict() of {_LOADER}",
    "load_state_dict": f"loader.load_state_dict(state) of {_LOADER}",
    "prefetch": _NOT_NEEDED,
    "to_torch": "loader().to_torch()", "to_jax": "loader().to_jax()",
    "to_arrow": "loader().to_arrow()", "to_pandas": "loader().to_arrow().read_pandas()",
    "iter_torch_batches": "batch(n).loader().to_torch()",
    "with_format": "loader().to_torch(), to_jax() or to_arrow()",
    "set_format": "loader().to_torch(), to_jax() or to_arrow()",
    "as_numpy_iterator": "loader(): batches are numpy arrays",
    "iter_batches": "batch(n).loader()", "batched": "batch(n)",
    "padded_batch": "batch(n, pad=0)", "rebatch": "batch(n)",
    "unbatch": "the pipeline before its batch, or explode('column') for lists",
    "bucket_by_sequence_length": "bucket('tokens', {64: 32, 128: 16}, pad=0)",
    "random_shuffle": "shuffle(seed=0)", "interleave": "sv.mix([a, b])",
    "concatenate": "sv.concat([a, b])", "union": "sv.concat([a, b])", "zip": "sv.zip([a, b])",
    "train_test_split": "split(train=0.9, test=0.1)", "random_split": "split(train=0.9, val=0.1)",
    "remove_columns": "drop('x')", "drop_columns": "drop('x')",
    "select_columns": "select('x', 'y')",
    "rename_column": "rename(old='new')", "rename_columns": "rename(old='new')",
    "limit": "take(n)", "show": "head(n)", "collect": _ALL, "to_list": _ALL,
    "where": "filter(sv.col('x') > 3)",
    "dropna": "filter(~sv.col('x').is_null())",
    "fillna": "derive(x=sv.num('x').fill_null(0))",
    "shard": "loader(rank=…, world=…), which a torch.distributed job sets by itself",
    "sort": _SORT,
    "groupby": _GROUP, "group_by": _GROUP, "group_by_key": _GROUP, "sort_values": _SORT,
    "order_by": _SORT,
    "merge": "join(other, on='x')", "column_names": "columns", "features": "schema",
    "num_rows": "count()", "iterrows": "a loop: `for row in pipeline`",
    "decode": "derive(image=sv.image('jpg').decode())",
    "to_tuple": "select('jpg', 'cls')", "write_parquet": "to_parquet('folder')",
    "invoke": "ask(question=…), the columns of one request by name",
    "ainvoke": "ask_async(question=…), the columns of one request by name",
    "compile": "tune(dev, maximize=metric), which chooses between the values of sv.choice(…)",
}  # fmt: skip
"""Methods of other libraries' datasets, and what a pipeline has instead."""

_MIX = "sv.mix([a, b], weights=[2, 1])"
_TAR = "rows.to_tar('folder')"

FUNCTIONS = {
    "DataLoader": "rows.batch(n).loader()", "from_tensor_slices": "sv.from_columns({'x': …})",
    "from_dict": "sv.from_columns({'x': …})", "from_list": "sv.from_items([{…}, …])",
    "from_numpy": "sv.from_columns({'x': array})",
    "from_pandas": "sv.from_arrow(pyarrow.Table.from_pandas(frame))",
    "from_generator": "sv.from_items(list(generator)), or sv.from_torch(iterable_dataset)",
    "load_dataset": "sv.from_huggingface(datasets.load_dataset(…))",
    "interleave_datasets": _MIX, "sample_from_datasets": _MIX, "RandomMix": _MIX,
    "concatenate_datasets": "sv.concat([a, b])", "ConcatDataset": "sv.concat([a, b])",
    "WebDataset": "sv.read_tar('s-*.tar')", "TarWriter": _TAR, "ShardWriter": _TAR,
    "random_split": "rows.split(train=0.9, val=0.1)",
    "WeightedRandomSampler": "rows.sample(weights=…)",
    "read_jsonl": "sv.read_json('*.jsonl')", "read_ndjson": "sv.read_json('*.jsonl')",
    "ImageFolder": "sv.read_files('photos/*/*.jpg').derive(label=lambda path: …)",
    "read_text": "sv.read_lines('*.txt')", "read_images": "sv.read_files('**/*.jpg')",
}  # fmt: skip
"""Functions and classes of other libraries, and what silva has instead."""

_LAST = ", and to_chw() as the last step of the image"

EXPRESSIONS = {
    "isin": "is_in([…])", "isna": "is_null()", "isnull": "is_null()",
    "notna": "~sv.col('x').is_null()", "notnull": "~sv.col('x').is_null()",
    "is_not_null": "~sv.col('x').is_null()",
    "fillna": "sv.num('x').fill_null(0)", "fill_null": "sv.num('x').fill_null(0)",
    "astype": "cast('float32')", "str": "sv.text('x')", "dt": "a function of the column",
    "list": "sv.list('x')", "between": "(sv.col('x') >= a) & (sv.col('x') <= b)",
    "apply": "a function of the column: derive(y=lambda x: …)",
    "map": "a function of the column: derive(y=lambda x: …)",
    "alias": "derive(name=expression)",
    "length": "sv.list('x').length(), or sv.text('x').length() for characters",
    "len": "sv.list('x').length(), or sv.text('x').length() for characters",
    "truncate": "sv.list('x').truncate(n)", "to_float": f"sv.image('x').to_float(){_LAST}",
    "normalize": f"sv.image('x').normalize(mean, std){_LAST}",
    "Normalize": f"sv.image('x').normalize(mean, std){_LAST}",
    "random_horizontal_flip": "random_flip()", "RandomHorizontalFlip": "random_flip()",
    "hflip": "flip()", "horizontal_flip": "flip()",
    "to_tensor": "to_float().to_chw()", "ToTensor": "to_float().to_chw()",
    "TrivialAugmentWide": "trivial_augment()", "ColorJitter": "color_jitter(0.4)",
    "Resize": "resize(height, width), or resize_shorter(size)",
    "mfcc": "mel(…), and a function of the column for the cosine transform",
    "MFCC": "mel(…), and a function of the column for the cosine transform",
    "melspectrogram": "mel(…)", "MelSpectrogram": "mel(…)", "mel_spectrogram": "mel(…)",
    "amplitude_to_db": "decibels()", "AmplitudeToDB": "decibels()", "power_to_db": "decibels()",
    "TimeMasking": "mask_time(…)", "time_masking": "mask_time(…)",
    "FrequencyMasking": "mask_frequency(…)", "frequency_masking": "mask_frequency(…)",
    "to_mono": "mono()", "Resample": "resample(rate)", "load": "decode()",
}  # fmt: skip
"""Methods of other libraries' columns, and what an expression has instead."""

ARGUMENTS = {
    "loader": {
        "num_workers": _WORKERS, "num_parallel_calls": _WORKERS, "batch_size": _COUNT,
        "shuffle": _SHUFFLE, "sampler": "shuffle(…) or sample(…) on the pipeline",
        "batch_sampler": "bucket(…) or batch(…) on the pipeline",
        "pin_memory": "loader().to_torch(device='cuda', pin_memory=True)",
        "prefetch_factor": _NOT_NEEDED, "prefetch": _NOT_NEEDED, "buffer_size": _NOT_NEEDED,
        "persistent_workers": "nothing: workers live as long as the loader",
        "drop_last": "batch(n, drop_last=True) on the pipeline",
        "collate_fn": "batch(n, collate=function) on the pipeline",
        "worker_init_fn": "a class marked @sv.stateful, which each worker builds once",
        "generator": "seed=…", "timeout": "deadline=…, in seconds",
        "device": "loader().to_torch(device=…)", "num_replicas": "world=…",
        "world_size": "world=…",
    },
    "batch": {
        "batch_size": "batch(n)", "drop_remainder": "drop_last=True",
        "collate_fn": "collate=function", "padding_value": "pad=…", "padding_values": "pad={…}",
        "num_parallel_calls": _WORKERS, "deterministic": "loader(ordered=False)",
    },
    "shuffle": {
        "buffer_size": "kind='window', window=…; without it all rows are shuffled",
        "reshuffle_each_iteration": _LOADER, "generator": "seed=…",
    },
    "derive": {
        "num_parallel_calls": _WORKERS, "num_proc": _WORKERS, "num_workers": _WORKERS,
        "concurrency": _WORKERS, "num_cpus": _WORKERS, "deterministic": "loader(ordered=False)",
        "batched": "a function marked @sv.batched",
        "batch_size": "a function marked @sv.batched(size=…)",
        "remove_columns": "drop('x') after it", "input_columns": "reads=('x',)",
    },
    "read_csv": {
        "sep": "delimiter=…", "dtype": "types={'x': 'str'}", "usecols": "columns=[…]",
        "names": "header=False, then rename", "nrows": "read_csv(…).take(n)",
        "na_values": "derive with a function: empty numbers are null, empty text is ''",
    },
    "read_json": {"lines": "nothing: read_json always reads one object a line"},
    "tokenize": {
        "truncation": "truncate(n) after it", "max_length": "truncate(n) after it",
        "padding": "batch(n, pad=0), or pad(n) after truncate(n)",
        "add_special_tokens": "special_tokens=True", "return_tensors": "loader().to_torch()",
    },
    "search": {
        "top_k": "k=…", "top_n": "k=…", "limit": "k=…", "mode": "by='hybrid'",
        "filter": "where=sv.col('year') > 1970", "filters": "where=sv.col('year') > 1970",
    },
    "serve": {
        "timeout": "deadline=…, in seconds", "max_concurrency": "most=…, the requests in flight",
        "api_key": "token=…", "rate_limit": "rate=…, requests per second",
        "ssl_certfile": "tls=(certificate, key)", "ssl_keyfile": "tls=(certificate, key)",
    },
    "tune": {
        "metric": "maximize=metric", "max_latency": "p95=…, in seconds",
        "latency": "p95=…, in seconds", "n_trials": "seconds=…, the budget of the search",
        "timeout": "seconds=…, the budget of the search",
    },
    "loop": {
        "max_turns": "at_most=…", "max_steps": "at_most=…", "max_iterations": "at_most=…",
        "timeout": "seconds=…", "tools": "tools.call('said') as a step of the turn",
    },
    "Endpoint": {
        "base_url": "url=…", "model": "name=…",
        "api_key": "key='API_KEY', the name of an environment variable",
        "max_retries": "deadline=…: a call is tried again for so many seconds",
        "max_tokens": "generate(…, max_tokens=…)", "temperature": "generate(…, temperature=…)",
    },
    "read_parquet": {"filters": "filter(sv.col('x') > 3), which is read by row groups"},
}  # fmt: skip
"""Arguments of other libraries, by verb or source, and what it takes instead."""

CALLED = {
    "split": "split(train=0.9, val=0.1)", "concat": "sv.concat([a, b])", "zip": "sv.zip([a, b])",
    "what_if": "what_if(decode=0.5): a name, and the factor for its time",
    "mix": "sv.mix([a, b], weights=[2, 1])",
    "ask": "ask(question=…), the columns of one request by name",
    "serve": "serve(port=8000)", "recall_at": "recall_at(1, 'hits', 'gold')",
}  # fmt: skip
"""How to call a verb that takes other positional arguments in other libraries."""

WHOLE_ROWS = frozenset(
    ("row", "rows", "example", "examples", "sample", "batch", "item", "record", "element", "entry")
)
"""Names of parameters that hold a whole row in other libraries."""
