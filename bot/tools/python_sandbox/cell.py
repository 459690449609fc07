"""The program that is sent into the sandbox: the given code, and what shows the value of its last expression.

The code is never read here: hostile source can bring a parser down
(https://docs.python.org/3/library/ast.html#ast.parse). It travels as a string, and the process inside the sandbox
compiles it as ``program.py``. What that process says about a data frame is a file like any other that it could write,
so nothing is won by forging it.
"""

from __future__ import annotations

from bot.tools.python_sandbox.collect import OUTPUT, TABLE

FILE_NAME = "program.py"
"""How tracebacks name the code."""

RESULT = "result.csv"
HEAD_ROWS, HEAD_COLUMNS, CELL_CHARS = 20, 12, 60

_RUN = """\
def __cell__(source, scope):
    import os, sys

    def pictures():
        kinds = (".png", ".jpg", ".jpeg", ".svg", ".pdf")
        found = [e for e in os.scandir({output!r}) if e.name.lower().endswith(kinds)]
        return {{(e.name, e.stat(follow_symlinks=False).st_mtime_ns) for e in found}}

    def show_figures(before):
        pyplot = sys.modules.get("matplotlib.pyplot")
        numbers = pyplot.get_fignums()[:5] if pyplot is not None else ()
        if numbers and not pictures() - before:
            for n in numbers:
                pyplot.figure(n).savefig({output!r} + "/figure-" + str(n) + ".png")
                pyplot.close(n)

    def cell(item):
        return str(item).replace("\\n", " ")[:{chars}]

    def show_frame(frame, pandas):
        import json

        plain = isinstance(frame.index, pandas.RangeIndex) and frame.index.name is None
        head = frame.iloc[:{rows}, :{columns}]
        if not plain:
            head = head.reset_index(allow_duplicates=True).iloc[:, :{columns}]
        table = {{
            "columns": [cell(name) for name in head.columns],
            "rows": [[cell(item) for item in row] for row in head.itertuples(index=False, name=None)],
            "row_count": len(frame),
            "column_count": len(frame.columns) + (0 if plain else frame.index.nlevels),
        }}
        try:
            frame.to_csv({result!r}, index=not plain)
        except OSError:
            os.remove({result!r})
            raise
        with open({table!r}, "w", encoding="utf-8") as file:
            json.dump(table, file)

    def show(value):
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(value, pandas.Series):
            value = value.to_frame()
        if pandas is not None and isinstance(value, pandas.DataFrame):
            try:
                return show_frame(value, pandas)
            except OSError as error:
                print("the table could not be written:", error, file=sys.stderr)
        first = value[0] if type(value) in (list, tuple) and value else value
        if value is not None and not type(first).__module__.startswith("matplotlib"):
            print(repr(value))

    os.makedirs({output!r}, exist_ok=True)
    if os.path.lexists({table!r}):
        os.remove({table!r})
    before = pictures()
    try:
        tree = compile(source, {file!r}, "exec", 0x400, True)
        last = tree.body.pop() if tree.body and type(tree.body[-1]).__name__ == "Expr" else None
        exec(compile(tree, {file!r}, "exec", 0, True), scope)
        if last is not None:
            import _ast

            show(eval(compile(_ast.Expression(last.value), {file!r}, "eval", 0, True), scope))
        show_figures(before)
    except Exception:
        import linecache

        linecache.cache[{file!r}] = (len(source), None, source.splitlines(True), {file!r})
        raise


globals().pop("__cell__")({source}, globals())
"""


def build_cell(code: str) -> str:
    """Build the program that runs ``code`` as ``__main__`` and shows what a notebook would show.

    The value of its last expression is printed; a data frame there is kept as a table and as CSV. Figures that were
    drawn and never saved become pictures.

    Any text can be given: also one with NUL characters or half surrogate pairs is an error of the program only.
    """
    return _RUN.format(
        file=FILE_NAME,
        output=OUTPUT,
        rows=HEAD_ROWS,
        columns=HEAD_COLUMNS,
        chars=CELL_CHARS,
        result=f"{OUTPUT}/{RESULT}",
        table=f"{OUTPUT}/{TABLE}",
        source=repr(code),
    )
