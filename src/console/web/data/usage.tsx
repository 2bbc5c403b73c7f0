import { useMemo, useState } from 'preact/hooks';
import { navigate } from '../shell/browser.ts';
import { callApi } from '../shell/client.ts';
import { Chart, type ChartSeries } from '../components/chart.tsx';
import { Button, Segments } from '../components/controls.tsx';
import { formatCount, formatDate } from '../components/format.ts';
import { Card, ErrorMessage, Note, Table, type TableColumn } from '../components/layout.tsx';
import { useAction, useLoaded, type Loaded } from '../components/load.ts';
import { emptyDraft, loadDictionary, startFrom } from '../new-export/draft.ts';
import { loadCatalogue } from './catalogue.tsx';
import { datesOf, formatDay, listDates, type Days } from './volume.tsx';

/** Rows by date: what a chart shows. */
interface DailySeries {
  readonly label: string;
  readonly days: readonly { readonly date: string; readonly count: number }[];
}

interface UsageProps {
  readonly idApp: string;
  readonly days: Days;
}

type Subject = 'user' | 'device';
const subjects = [
  ['user', 'Users'],
  ['device', 'Devices'],
] as const;

/** Charts of derived events, of which a chart counts the rows. */
const charts = [
  {
    id: 'active',
    title: { user: 'Users a day', device: 'Devices a day' },
    event: { user: 'userActivities', device: 'activities' },
    definition: 'Each with at least one event on the day.',
  },
  {
    id: 'new',
    title: { user: 'New users a day', device: 'New devices a day' },
    event: { user: 'newUsers', device: 'newDevices' },
    definition: 'Each on the day of the first event of all time.',
  },
  {
    id: 'sessions',
    title: { user: 'Sessions a day', device: 'Sessions a day' },
    event: { user: 'userSessions', device: 'sessions' },
    definition: 'On the day of their first event. A pause of more than 30 minutes ends a session.',
  },
] as const;

/** Opens New export with the rows of a chart. */
async function exportRows(event: string, { idApp, days }: UsageProps): Promise<void> {
  const { dateFrom, dateTo } = datesOf(days);
  startFrom({
    ...emptyDraft(await loadDictionary(), event),
    timezone: 'UTC',
    period: { kind: 'days', from: dateFrom, to: dateTo },
    filters: { idApp: [idApp] },
  });
  navigate('');
}

interface ChartPartProps extends UsageProps {
  readonly id: string;
  readonly title: string;
  readonly definition: string;
  readonly event: string;
  readonly loaded: Loaded<readonly DailySeries[]>;
}

/** A chart with its table and a button that exports its rows. */
function ChartPart({ id, title, definition, event, loaded: { data, error, isLoading }, ...usage }: ChartPartProps) {
  const { error: exportError, act } = useAction();
  const { dates, series, total } = useMemo(() => {
    const all = listDates(datesOf(usage.days));
    const made = (data ?? []).map(({ label, days }): ChartSeries => {
      const counts = new Map(days.map(({ date, count }) => [date, count]));
      return { label, values: all.map((date) => counts.get(date) ?? 0) };
    });
    return { dates: all, series: made, total: made.flatMap(({ values }) => values).reduce((sum, n) => sum + n, 0) };
  }, [data, usage.days.period, usage.days.dateTo]);
  const columns: readonly TableColumn<string>[] = [
    ['Day (UTC)', formatDate, 'nowrap'],
    ...series.map(({ label, values }): TableColumn<string> => [
      label,
      (date) => formatCount(values[dates.indexOf(date)] ?? 0),
      'number',
    ]),
  ];
  const filled = dates.filter((_, index) => series.some(({ values }) => (values[index] ?? 0) > 0)).toReversed();
  return (
    <section class="stack tight usage" aria-labelledby={id} aria-busy={isLoading}>
      <div class="spread">
        <h3 id={id}>{title}</h3>
        <Button kind="plain small" onClick={() => void act(() => exportRows(event, usage))}>
          Export these rows<span class="hidden"> of {title}</span>
        </Button>
      </div>
      <ErrorMessage error={error ?? exportError} />
      {data === undefined && error === undefined && <p class="muted chart-space low">Counting…</p>}
      {data !== undefined && total === 0 && <p class="muted">None in this period.</p>}
      {total > 0 && (
        <>
          <Chart
            form="columns"
            height={140}
            label={`${title}: ${formatCount(total)} in sum`}
            times={dates.map((date) => Date.parse(date) / 1000)}
            series={series}
            formatTime={formatDay}
          />
          <details>
            <summary class="small">Show as table</summary>
            <Table label={`${title}, as a table`} kind="tall" columns={columns} rows={filled} keyOf={(date) => date} />
          </details>
        </>
      )}
      <Note>{definition}</Note>
    </section>
  );
}

type DerivedProps = UsageProps & { readonly chart: (typeof charts)[number]; readonly subject: Subject };

function DerivedChart({ chart, subject, idApp, days }: DerivedProps) {
  const { id, title, event, definition } = chart;
  const loaded = useLoaded(
    async (signal) => {
      const callArguments = { event: event[subject], selectors: 'tsEvent', timezone: 'UTC', idApp, ...datesOf(days) };
      const { days: counted } = await callApi('/api/raw/v1/export/daily.json', { callArguments, signal });
      return [{ label: title[subject], days: counted.map(({ date, rows }) => ({ date, count: rows })) }];
    },
    [subject, idApp, days.period, days.dateTo],
  );
  return (
    <ChartPart
      id={`usage-${id}`}
      title={title[subject]}
      definition={definition}
      event={event[subject]}
      idApp={idApp}
      days={days}
      loaded={loaded}
    />
  );
}

/** Names of a chart, each with a colour; if there are more, the last colour is for all others. */
const maxNames = 5;

function NamesChart({ idApp, days }: UsageProps) {
  const loaded = useLoaded(
    async (signal): Promise<readonly DailySeries[]> => {
      const { customEvents } = await loadCatalogue({ idApp, days, daysOfEvent: days.period }, signal);
      const toSeries = (label: string, events: typeof customEvents): DailySeries => ({
        label,
        days: sumByDate(events.flatMap((event) => event.days)),
      });
      const own = customEvents.length <= maxNames ? maxNames : maxNames - 1;
      const [named, others] = [customEvents.slice(0, own), customEvents.slice(own)];
      return [
        ...named.map((event) => toSeries(event.customEventName, [event])),
        ...(others.length === 0 ? [] : [toSeries(`${formatCount(others.length)} other names`, others)]),
      ];
    },
    [idApp, days.period, days.dateTo],
  );
  return (
    <ChartPart
      id="usage-names"
      title="Custom events by name"
      definition="The most frequent names of the period."
      event="customEvents"
      idApp={idApp}
      days={days}
      loaded={loaded}
    />
  );
}

function sumByDate(days: readonly { readonly date: string; readonly events: number }[]): DailySeries['days'] {
  const sums = new Map<string, number>();
  for (const { date, events } of days) sums.set(date, (sums.get(date) ?? 0) + events);
  return [...sums].map(([date, count]) => ({ date, count }));
}

/** Shows users, new users, sessions and event names of an app by day. */
export function UsageCard({ idApp, days }: UsageProps) {
  const [subject, setSubject] = useState<Subject>('user');
  return (
    <Card
      id="usage"
      title="Usage by day (UTC)"
      beside={<Segments legend="Counted" name="subject" choices={subjects} value={subject} onChoose={setSubject} />}
    >
      <div class="usage-charts">
        {charts.map((chart) => (
          <DerivedChart key={chart.id} chart={chart} subject={subject} idApp={idApp} days={days} />
        ))}
        <NamesChart idApp={idApp} days={days} />
      </div>
    </Card>
  );
}
