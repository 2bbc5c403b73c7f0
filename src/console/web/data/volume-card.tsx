import { useMemo } from 'preact/hooks';
import { Chart } from '../parts/chart.tsx';
import { formatCount, formatDate } from '../parts/format.ts';
import type { Loaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { kindsOf, listDates, nameOf, periods, type Period, type Volume } from './volume.ts';

const shortDate = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', timeZone: 'UTC' });
const formatDay = (seconds: number): string => shortDate.format(seconds * 1000);

/** The same as the chart, for whoever reads it or hears it: days with events, the newest first. */
function VolumeTable({ volume }: { readonly volume: Volume }) {
  const kinds = kindsOf(volume);
  const counts = new Map(volume.days.map(({ date, kind, events }) => [`${date} ${kind}`, events]));
  const dates = [...new Set(volume.days.map(({ date }) => date))].toReversed();
  return (
    <details>
      <summary>The figures as a table</summary>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Events by day and kind">
        <table>
          <thead>
            <tr>
              <th scope="col">Day (UTC)</th>
              {kinds.map(({ kind }) => (
                <th scope="col" class="number" key={kind}>
                  {nameOf(kind)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {dates.map((date) => (
              <tr key={date}>
                <td class="nowrap">{formatDate(date)}</td>
                {kinds.map(({ kind }) => (
                  <td class="number" key={kind}>
                    {formatCount(counts.get(`${date} ${kind}`) ?? 0)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

function VolumeChart({ volume }: { readonly volume: Volume }) {
  const { times, series, total } = useMemo(() => {
    const dates = listDates(volume);
    const counts = new Map(volume.days.map(({ date, kind, events }) => [`${date} ${kind}`, events]));
    const kinds = kindsOf(volume);
    return {
      times: dates.map((date) => Date.parse(date) / 1000),
      series: kinds.map(({ kind }) => ({
        label: nameOf(kind),
        values: dates.map((date) => counts.get(`${date} ${kind}`) ?? 0),
      })),
      total: kinds.reduce((sum, { events }) => sum + events, 0),
    };
  }, [volume]);
  const label = `${formatCount(total)} events from ${formatDate(volume.dateFrom)} to ${formatDate(volume.dateTo)}, by day and kind`;
  return <Chart form="columns" label={label} times={times} series={series} formatTime={formatDay} />;
}

/** Events by day and kind, as columns and as a table. */
export function VolumeCard({
  volume: { data, error, isLoading },
  period,
  onPeriod,
}: {
  readonly volume: Loaded<Volume>;
  readonly period: Period;
  readonly onPeriod: (period: Period) => void;
}) {
  const total = kindsOf(data).reduce((sum, { events }) => sum + events, 0);
  return (
    <section class="card stack" aria-labelledby="volume" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="volume">
          Events by day (UTC) <span class="muted">{data === undefined ? '' : formatCount(total)}</span>
        </h2>
        <div class="row">
          <span class="muted small" aria-hidden="true">
            Days
          </span>
          <fieldset class="segments" aria-label="Days">
            {periods.map((each) => (
              <label key={each}>
                <input type="radio" name="period" checked={each === period} onChange={() => onPeriod(each)} />
                <span>{each}</span>
              </label>
            ))}
          </fieldset>
        </div>
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted chart-room">Counting…</p>}
      {data !== undefined && total === 0 && (
        <p class="muted">
          No events in these days. What was acknowledged shows here when it is in the lake, after some seconds.
        </p>
      )}
      {data !== undefined && total > 0 && (
        <>
          <VolumeChart volume={data} />
          <VolumeTable volume={data} />
        </>
      )}
    </section>
  );
}
