import { useMemo, useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { useActivity } from '../components/activity.ts';
import { Chart } from '../components/chart.tsx';
import { Button, Segments } from '../components/controls.tsx';
import { formatCount, formatDate } from '../components/format.ts';
import { Card, LoadingState, Table, type TableColumn } from '../components/layout.tsx';
import { useLoaded, type Loaded } from '../components/load.ts';
import { addDays, todayIn } from '../components/zones.ts';

/** Selectable periods, days. */
export const periods = [7, 30, 90, 365] as const;
export type Period = (typeof periods)[number];

/** Events by UTC date and kind, without empty rows. */
export type Volume = AnswerOf<'/api/data/v1/volume.json'>;

const dayMs = 86_400_000;

/** The shown days: a number of days up to a UTC date. */
export interface Days {
  readonly period: Period;
  readonly dateTo: string;
}

export function datesOf({ period, dateTo }: Days): { readonly dateFrom: string; readonly dateTo: string } {
  return { dateFrom: addDays(dateTo, 1 - period), dateTo };
}

/** Keeps the shown days. They end today, or with the newest event if the period up to today has none. */
export function useDays(idApp?: string) {
  const [period, setPeriod] = useState<Period>(periods[1]);
  const [isToday, setToday] = useState(false);
  const { data } = useActivity({ ...(idApp === undefined ? {} : { idApp }), limit: '1' });
  const today = todayIn('UTC');
  const newest = data?.lastDate;
  const isOld = newest !== undefined && newest < addDays(today, 1 - period);
  const days: Days = { period, dateTo: isOld && !isToday ? newest : today };
  return { days, setPeriod, setToday, isToday, newest: isOld ? newest : undefined, events: data?.events };
}

/** Lists every date of a volume, also those without events. */
export function listDates({ dateFrom, dateTo }: Pick<Volume, 'dateFrom' | 'dateTo'>): string[] {
  const dates: string[] = [];
  for (let ms = Date.parse(dateFrom); ms <= Date.parse(dateTo); ms += dayMs)
    dates.push(new Date(ms).toISOString().slice(0, 10));
  return dates;
}

/** Returns the kinds of a volume, the most frequent first. */
export function kindsOf(volume: Volume | undefined): { readonly kind: string; readonly events: number }[] {
  const sums = new Map<string, number>();
  for (const { kind, events } of volume?.days ?? []) sums.set(kind, (sums.get(kind) ?? 0) + events);
  return [...sums].map(([kind, events]) => ({ kind, events })).toSorted((a, b) => b.events - a.events);
}

export function nameOf(kind: string): string {
  return kind.replaceAll('_', ' ');
}

export function useVolume({ period, dateTo }: Days, idApp?: string): Loaded<Volume> {
  return useLoaded(
    (signal) =>
      callApi('/api/data/v1/volume.json', {
        callArguments: { ...datesOf({ period, dateTo }), ...(idApp === undefined ? {} : { idApp }) },
        signal,
      }),
    [period, dateTo, idApp],
  );
}

const shortDate = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', timeZone: 'UTC' });
export const formatDay = (seconds: number): string => shortDate.format(seconds * 1000);

/** Returns a lookup of the events of a date and kind. */
function countsOf({ days }: Volume): (date: string, kind: string) => number {
  const counts = new Map(days.map(({ date, kind, events }) => [`${date} ${kind}`, events]));
  return (date, kind) => counts.get(`${date} ${kind}`) ?? 0;
}

/** Shows the chart's figures for screen readers: days with events, the newest first. */
function VolumeTable({ volume }: { readonly volume: Volume }) {
  const count = countsOf(volume);
  const tableColumns: readonly TableColumn<string>[] = [
    ['Day (UTC)', formatDate, 'nowrap'],
    ...kindsOf(volume).map(({ kind }): TableColumn<string> => [
      nameOf(kind),
      (date) => formatCount(count(date, kind)),
      'number',
    ]),
  ];
  const dates = [...new Set(volume.days.map(({ date }) => date))].toReversed();
  return (
    <details>
      <summary>Show as table</summary>
      <Table label="Events by day and kind" kind="tall" columns={tableColumns} rows={dates} keyOf={(date) => date} />
    </details>
  );
}

function VolumeChart({ volume }: { readonly volume: Volume }) {
  const { times, series, total } = useMemo(() => {
    const dates = listDates(volume);
    const count = countsOf(volume);
    const kinds = kindsOf(volume);
    return {
      times: dates.map((date) => Date.parse(date) / 1000),
      series: kinds.map(({ kind }) => ({ label: nameOf(kind), values: dates.map((date) => count(date, kind)) })),
      total: kinds.reduce((sum, { events }) => sum + events, 0),
    };
  }, [volume]);
  const label = `${formatCount(total)} events from ${formatDate(volume.dateFrom)} to ${formatDate(volume.dateTo)}, by day and kind`;
  return <Chart form="columns" label={label} times={times} series={series} formatTime={formatDay} />;
}

/** States that the shown days end with the newest event, and leads to the last days, or back. */
function NewestNote({ of: { days, newest, isToday, setToday } }: { readonly of: ReturnType<typeof useDays> }) {
  if (newest === undefined) return null;
  return (
    <p class="message info spread" role="status">
      <span>
        Newest event: {formatDate(newest)}.
        {!isToday && ` The page shows the ${formatCount(days.period)} days up to it.`}
      </span>
      <Button kind="small" onClick={() => setToday(!isToday)}>
        {isToday ? 'Show these days' : `Show the last ${days.period} days`}
      </Button>
    </p>
  );
}

interface VolumeProps {
  readonly volume: Loaded<Volume>;
  readonly shown: ReturnType<typeof useDays>;
}

/** Shows events by day and kind as columns and as a table. */
export function VolumeCard({ volume: { data, error, isLoading }, shown }: VolumeProps) {
  const total = kindsOf(data).reduce((sum, { events }) => sum + events, 0);
  const choices = periods.map((each) => [each, each] as const);
  return (
    <Card
      id="volume"
      title="Events by day (UTC)"
      count={data && total}
      isBusy={isLoading}
      beside={
        <div class="row">
          <span class="muted small" aria-hidden="true">
            Days
          </span>
          <Segments
            legend="Days"
            name="period"
            choices={choices}
            value={shown.days.period}
            onChoose={shown.setPeriod}
          />
        </div>
      }
    >
      <NewestNote of={shown} />
      <LoadingState of={{ data, error }} wait="Counting…" kind="chart-space" />
      {data !== undefined && total === 0 && (
        <p class="muted">No events in this period. New events appear within seconds, when they are in the lake.</p>
      )}
      {data !== undefined && total > 0 && (
        <>
          <VolumeChart volume={data} />
          <VolumeTable volume={data} />
        </>
      )}
    </Card>
  );
}
