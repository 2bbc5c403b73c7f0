import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
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

/** Number of series colours. */
const seriesColors = 5;
const classOf = (index: number): string => `series-${(index % seriesColors) + 1}`;

/** Margins around the plot, px: labels of values are on the left, labels of times below. */
const [left, right, top, bottom] = [48, 8, 8, 24];
/** Width of a label of a time, and height of a step between values, px. */
const [labelPixels, stepPixels] = [90, 40];

/** Returns round values from zero to at least the maximum. */
function listTicks(max: number, steps: number): number[] {
  const rough = Math.max(1, max / steps);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough && each % 1 === 0) ?? rough;
  return Array.from({ length: Math.ceil(Math.max(1, max) / step) + 1 }, (_, index) => index * step);
}

/** Returns the lower and the upper ends of each series: stacked ones begin at the sum of the earlier ones. */
function listEnds(series: readonly ChartSeries[], isStacked: boolean): (readonly (readonly [number, number])[])[] {
  const ends: (readonly (readonly [number, number])[])[] = [];
  for (const { values } of series)
    ends.push(
      values.map((value, at) => {
        const from = isStacked ? (ends.at(-1)?.[at]?.[1] ?? 0) : 0;
        return [from, from + value];
      }),
    );
  return ends;
}

interface Scale {
  readonly width: number;
  readonly x: (index: number) => number;
  readonly y: (value: number) => number;
  /** Width of a column, or distance of the points of a line. */
  readonly slot: number;
}

function makeScale({ times, form, height = 220 }: ChartOptions, width: number, max: number): Scale {
  const inner = Math.max(1, width - left - right);
  const slot = form === 'columns' ? inner / times.length : inner / Math.max(1, times.length - 1);
  const begin = form === 'columns' ? left + slot / 2 : left;
  return {
    width,
    slot,
    x: (index) => begin + index * slot,
    y: (value) => top + (height - top - bottom) * (1 - value / max),
  };
}

const round = (value: number): string => value.toFixed(1);

/** Draws the columns of a series, or its line. */
function pathOf(
  ends: readonly (readonly [number, number])[],
  form: ChartOptions['form'],
  { x, y, slot }: Scale,
): string {
  if (form === 'lines')
    return ends.map(([, to], at) => `${at === 0 ? 'M' : 'L'}${round(x(at))} ${round(y(to))}`).join('');
  const width = Math.min(60, slot * 0.72);
  return ends
    .map(([from, to], at) =>
      from === to
        ? ''
        : `M${round(x(at) - width / 2)} ${round(y(from))}V${round(y(to))}h${round(width)}V${round(y(from))}z`,
    )
    .join('');
}

interface AxesProps {
  readonly chart: ChartOptions;
  readonly scale: Scale;
  readonly ticks: readonly number[];
}

function Axes({ chart: { times, formatTime, height = 220 }, scale, ticks }: AxesProps) {
  const every = Math.max(1, Math.ceil((times.length * labelPixels) / scale.width));
  return (
    <g class="chart-axes">
      {ticks.map((tick) => (
        <g key={tick}>
          <path d={`M${left} ${round(scale.y(tick))}H${scale.width - right}`} />
          <text x={left - 8} y={scale.y(tick) + 4} text-anchor="end">
            {formatShort(tick)}
          </text>
        </g>
      ))}
      {times.map((seconds, index) =>
        index % every === 0 && scale.x(index) < scale.width - right - labelPixels / 3 ? (
          <text key={seconds} x={scale.x(index)} y={height - 6} text-anchor={index === 0 ? 'start' : 'middle'}>
            {formatTime(seconds)}
          </text>
        ) : null,
      )}
    </g>
  );
}

/** Returns the width of an element, px; 0 before it is measured. */
function useWidth() {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const { current } = element;
    if (current === null) return undefined;
    const measure = (): void => setWidth(current.clientWidth);
    const resized = new ResizeObserver(measure);
    resized.observe(current);
    measure();
    return () => resized.disconnect();
  }, []);
  return { element, width };
}

/** Draws series over time with the values at the pointer. */
export function Chart(options: ChartOptions) {
  const { label, times, series, form, formatTime, height = 220 } = options;
  const { element, width } = useWidth();
  const [pointed, setAt] = useState<number>();
  const at = pointed !== undefined && pointed < times.length ? pointed : undefined;
  const { scale, paths, ticks } = useMemo(() => {
    const ends = listEnds(series, form === 'columns');
    const max = Math.max(0, ...ends.flat().map(([, to]) => to));
    const values = listTicks(max, Math.max(2, Math.floor(height / stepPixels)));
    const made = makeScale(options, width, values.at(-1) ?? 1);
    return { scale: made, ticks: values, paths: ends.map((each) => pathOf(each, form, made)) };
  }, [times, series, width]);

  const onMove = ({ offsetX }: PointerEvent): void => {
    const index = Math.round((offsetX - scale.x(0)) / scale.slot);
    setAt(Math.min(times.length - 1, Math.max(0, index)));
  };
  const seconds = at === undefined ? undefined : times[at];
  return (
    <figure class="chart">
      <div ref={element} class={`chart-plot chart-${form}`} style={{ height: `${height}px` }}>
        {width > 0 && (
          <svg
            width={width}
            height={height}
            role="img"
            aria-label={label}
            onPointerMove={onMove}
            onPointerLeave={() => setAt(undefined)}
          >
            <Axes chart={options} scale={scale} ticks={ticks} />
            {at !== undefined && <path class="chart-pointer" d={`M${round(scale.x(at))} ${top}V${height - bottom}`} />}
            {paths.map((path, index) => (
              <path key={index} class={classOf(index)} d={path} />
            ))}
          </svg>
        )}
      </div>
      <figcaption>
        <ul class="chart-legend">
          {series.map((each, index) => (
            <li key={each.label}>
              <span class={`swatch ${classOf(index)}`} />
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

const [sparkWidth, sparkHeight] = [120, 24];

/** Draws values as small columns without labels; a text next to them has the figures. */
export function Sparkline({ values }: { readonly values: readonly number[] }) {
  const max = Math.max(1, ...values);
  const slot = sparkWidth / Math.max(1, values.length);
  const path = values.map((value, index) => {
    // A day with any event is visible.
    const height = value === 0 ? 0 : Math.max(1.5, (value / max) * sparkHeight);
    return `M${round(index * slot)} ${sparkHeight}v-${round(height)}h${round(slot * 0.75)}v${round(height)}z`;
  });
  return (
    <svg class="sparkline" viewBox={`0 0 ${sparkWidth} ${sparkHeight}`} preserveAspectRatio="none" aria-hidden="true">
      <path d={path.join('')} />
    </svg>
  );
}
