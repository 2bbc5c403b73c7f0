import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { theme } from '../shell/browser.ts';
import { formatCount, formatShort } from './format.ts';

export interface ChartSeries {
  readonly label: string;
  /** One value per time. */
  readonly values: readonly number[];
}

export interface ChartOptions {
  /** Accessible description; a table next to the chart has the same data. */
  readonly label: string;
  /** Unix seconds, ascending. */
  readonly times: readonly number[];
  readonly series: readonly ChartSeries[];
  /** `columns` are stacked; `lines` start from zero. */
  readonly form: 'columns' | 'lines';
  readonly formatTime: (seconds: number) => string;
  readonly height?: number;
}

/** Number of series colours. A canvas cannot use variables of style sheets. */
const seriesColors = 5;

/** Returns the current colour of a style sheet variable. */
function readColor(at: Element, variable: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${variable})`;
  at.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Returns the sums up to each series. */
function stack(series: readonly ChartSeries[]): number[][] {
  const sums: number[][] = [];
  for (const { values } of series) sums.push(values.map((value, at) => value + (sums.at(-1)?.[at] ?? 0)));
  return sums;
}

function makePlot(target: HTMLElement, options: ChartOptions, onHover: (at: number | undefined) => void): uPlot {
  const { times, series, form, formatTime, height = 220 } = options;
  const isStacked = form === 'columns';
  const [text, line] = ['muted', 'line'].map((name) => readColor(target, name));
  const colorOf = (index: number): string => readColor(target, `series-${(index % seriesColors) + 1}`);
  const shown = isStacked ? stack(series) : series.map(({ values }) => [...values]);
  // The highest first: later series are drawn on top.
  const order = isStacked ? [...series.keys()].toReversed() : [...series.keys()];
  const axis = { stroke: text ?? '', grid: { stroke: line ?? '', width: 1 }, ticks: { show: false } };
  const bars = uPlot.paths.bars?.({ size: [0.7, 60], align: 0 });
  return new uPlot(
    {
      width: Math.max(target.clientWidth, 200),
      height,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: !isStacked }, y: false },
      scales: {
        x: { time: true, range: (_, min, max) => (isStacked ? padTimes(min, max, times) : [min, max]) },
        y: { range: (_, __, max) => [0, Math.max(1, max) * 1.05] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 30,
          space: labelPixels,
          ...(isStacked ? { splits: ({ width }) => chooseLabels(times, width) } : { incrs: [...wholeSeconds] }),
          values: (_, splits) => splits.map(formatTime),
        },
        {
          ...axis,
          size: 56,
          values: (_, splits) => splits.map((value) => (value % 1 === 0 ? formatShort(value) : '')),
        },
      ],
      series: [
        {},
        ...order.map((index) => {
          const color = colorOf(index);
          return {
            label: series[index]?.label ?? '',
            stroke: color,
            width: isStacked ? 0 : 2,
            ...(isStacked ? { fill: color, ...(bars === undefined ? {} : { paths: bars }) } : {}),
            points: { show: false },
          };
        }),
      ],
      hooks: { setCursor: [({ cursor }) => onHover(cursor.idx ?? undefined)] },
    },
    [[...times], ...order.map((index) => shown[index] ?? [])],
    target,
  );
}

/** Steps between the labels of lines, s: no step is shorter than a label's precision. */
const wholeSeconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
/** Width of a label, px. */
const labelPixels = 90;

/** Selects as many column labels as fit, each at its own time in any time zone. */
function chooseLabels(times: readonly number[], width: number): number[] {
  const every = Math.max(1, Math.ceil((times.length * labelPixels) / width));
  return times.filter((_, index) => index % every === 0);
}

/** Adds space for the first and the last column. */
function padTimes(min: number, max: number, times: readonly number[]): [number, number] {
  const step = times.length > 1 ? (times[1] ?? 0) - (times[0] ?? 0) : 86_400;
  return [(min ?? 0) - step * 0.6, (max ?? 0) + step * 0.6];
}

/** Reports whether the system's theme is dark. */
function useSystemTheme(): boolean {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const [isDark, setDark] = useState(query.matches);
  useEffect(() => {
    const look = (): void => setDark(query.matches);
    query.addEventListener('change', look);
    return () => query.removeEventListener('change', look);
  }, []);
  return isDark;
}

/** Draws series over time with the values at the pointer. */
export function Chart(options: ChartOptions) {
  const { label, times, series, formatTime } = options;
  const target = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number>();
  const isDark = useSystemTheme();
  const chosen = theme.value;

  useEffect(() => {
    const element = target.current;
    if (element === null || times.length === 0) return undefined;
    const plot = makePlot(element, options, setAt);
    const resized = new ResizeObserver(() => {
      if (element.clientWidth > 0) plot.setSize({ width: element.clientWidth, height: plot.height });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [times, series, isDark, chosen]);

  const seconds = at === undefined ? undefined : times[at];
  return (
    <figure class="chart">
      <div ref={target} role="img" aria-label={label} />
      <figcaption>
        <ul class="chart-legend">
          {series.map((each, index) => (
            <li key={each.label}>
              <span class={`swatch series-${(index % seriesColors) + 1}`} />
              {each.label}
              {at !== undefined && seconds !== undefined && <b>{formatCount(each.values[at] ?? 0)}</b>}
            </li>
          ))}
        </ul>
        <span class="muted small" aria-hidden="true">
          {seconds === undefined ? '' : formatTime(seconds)}
        </span>
      </figcaption>
    </figure>
  );
}
