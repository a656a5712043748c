"""A notebook in a kernel of its own: `python notebook.py CELL ...` runs the cells, also behind an error."""

import sys

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Run the cells that are the arguments; print what each raised."""
    cells = [nbformat.v4.new_code_cell(source) for source in sys.argv[1:]]
    NotebookClient(nbformat.v4.new_notebook(cells=cells), allow_errors=True, timeout=300).execute()
    for cell in cells:
        print("raised:", [output.ename for output in cell.outputs if output.output_type == "error"])


if __name__ == "__main__":
    main()
