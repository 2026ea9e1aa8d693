import type { ISignal } from '@lumino/signaling';
import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useId, useRef, useState } from 'react';
import { Fragment, h } from '../ui/jsx';
import { summaryOf, valuesOf, type IFigure } from './figures';
import { drawPlot, formatMoment, loadLibrary, type IPlot } from './plot';
import type { GpuPool } from '../api/types';

/** Rows of a table that are read out; more points are summed up in fewer. */
const MOST_ROWS = 60;

interface IProps {
  figure: IFigure;
  columns: GpuPool.IColumns;
  trans: TranslationBundle;
  /** Emitted when colours are to be read anew. */
  themeChanged: ISignal<unknown, unknown> | null;
}

/** A figure as a chart or as a table, with the same numbers. */
export function Chart(props: IProps): JSX.Element {
  const { figure, trans } = props;
  const [asTable, setAsTable] = useState(false);
  const heading = useId();
  return (
    <section className="jp-GpuPool-figure" aria-labelledby={heading}>
      <header>
        <h3 id={heading} title={figure.meaning}>
          {figure.title}
        </h3>
        <button
          type="button"
          className="jp-GpuPool-link"
          aria-pressed={asTable}
          aria-label={trans.__('%1 as a table', figure.title)}
          onClick={() => setAsTable(!asTable)}
        >
          {asTable ? trans.__('Chart') : trans.__('Table')}
        </button>
      </header>
      <p className="jp-GpuPool-detail">{figure.meaning}</p>
      {asTable ? <FigureTable {...props} /> : <Plot {...props} />}
    </section>
  );
}

function Plot(props: IProps): JSX.Element {
  const { figure, columns, trans, themeChanged } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<IPlot | null>(null);
  const latest = useRef(columns);
  latest.current = columns;
  const [failed, setFailed] = useState(false);
  /** How often it was tried in vain. */
  const [tries, setTries] = useState(0);

  useEffect(() => {
    let gone = false;
    const fail = () => {
      if (!gone) {
        setFailed(true);
      }
    };
    const draw = async () => {
      const Library = await loadLibrary();
      if (gone || host.current === null) {
        return;
      }
      plot.current?.dispose();
      const now = latest.current;
      const values = valuesOf(figure, now);
      plot.current = drawPlot(
        Library,
        host.current,
        figure,
        now.t,
        values,
        trans.__('Time')
      );
      setFailed(false);
    };
    const redraw = () => {
      // The new theme's style sheet is in place a frame later.
      requestAnimationFrame(() => draw().catch(fail));
    };
    draw().catch(fail);
    const watcher = new ResizeObserver(() => {
      const width = host.current?.clientWidth ?? 0;
      if (width > 0) {
        plot.current?.resize(width);
      }
    });
    if (host.current) {
      watcher.observe(host.current);
    }
    themeChanged?.connect(redraw);
    return () => {
      gone = true;
      themeChanged?.disconnect(redraw);
      watcher.disconnect();
      plot.current?.dispose();
      plot.current = null;
    };
    // Lines of another figure are another chart: `key` sees to that.
  }, [themeChanged, figure.id, tries]);

  useEffect(() => {
    plot.current?.update(columns.t, valuesOf(figure, columns));
    if (failed) {
      setTries(tries + 1);
    }
  }, [columns]);

  return (
    <>
      {failed ? (
        <p role="alert">{trans.__('The chart could not be loaded.')}</p>
      ) : null}
      <div
        ref={host}
        role="img"
        aria-label={summaryOf(figure, columns, trans)}
        className="jp-GpuPool-plot"
        hidden={failed}
      />
    </>
  );
}

function FigureTable(props: IProps): JSX.Element {
  const { figure, columns, trans } = props;
  const values = valuesOf(figure, columns);
  const rows = rowsOf(columns.t.length, MOST_ROWS);
  return (
    <div
      className="jp-GpuPool-figureTable"
      tabIndex={0}
      role="group"
      aria-label={figure.title}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">{trans.__('From')}</th>
            {figure.lines.map(line => (
              <th scope="col" key={line.column}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([first, end]) => (
            <tr key={columns.t[first]}>
              <th scope="row">{formatMoment(columns.t[first])}</th>
              {values.map((line, index) => (
                <td key={figure.lines[index].column}>
                  {cell(mean(line.slice(first, end)), figure)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Ranges of points, at most so many. */
export function rowsOf(count: number, most: number): [number, number][] {
  const each = Math.max(1, Math.ceil(count / most));
  const rows: [number, number][] = [];
  for (let first = 0; first < count; first += each) {
    rows.push([first, Math.min(count, first + each)]);
  }
  return rows;
}

/** Of what is known; null: nothing is. */
export function mean(values: readonly (number | null)[]): number | null {
  const known = values.filter((value): value is number => value !== null);
  return known.length === 0
    ? null
    : known.reduce((sum, value) => sum + value, 0) / known.length;
}

function cell(value: number | null, figure: IFigure): string {
  return value === null ? '–' : figure.format(value);
}
