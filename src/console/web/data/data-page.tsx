import { useState } from 'preact/hooks';
import { path } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { AppHead, AppsCard } from '../components/apps.tsx';
import { Check, Select } from '../components/controls.tsx';
import { FirstEventCard } from '../components/first-event.tsx';
import { formatCount, formatDate } from '../components/format.ts';
import {
  Card,
  LoadingState,
  Note,
  PageHead,
  ShareBar,
  Table,
  useSearch,
  type TableColumn,
} from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { CatalogueCard } from './catalogue.tsx';
import { UsageCard } from './usage.tsx';
import { datesOf, kindsOf, nameOf, useDays, useVolume, VolumeCard, type Days } from './volume.tsx';

type Fields = AnswerOf<'/api/data/v1/fields.json'>;

const fieldColumns = (sampledEvents: number): readonly TableColumn<Fields['fields'][number]>[] => [
  ['Field', ({ name, column, type }) => <code title={`Column ${column}, ${type}`}>{name}</code>],
  ['Fill rate', ({ nonNullEvents }) => <ShareBar share={nonNullEvents / sampledEvents} />],
  ['Events', ({ nonNullEvents }) => formatCount(nonNullEvents), 'number wide-only'],
  [
    'Meaning',
    ({ description, default: value }) => (
      <span class="muted small">
        {description}
        {value !== undefined && ` Counts values other than the default, ${value}.`}
      </span>
    ),
    'wide-only',
  ],
];

function describeBasis({ sampledEvents, dateFrom, dateTo, isComplete }: Fields): string {
  if (dateFrom === undefined || dateTo === undefined)
    return isComplete
      ? 'No events of this type in this period.'
      : 'No events of this type among the newest of this period.';
  const days = dateFrom === dateTo ? formatDate(dateFrom) : `${formatDate(dateFrom)} to ${formatDate(dateTo)}`;
  return `Counted in ${isComplete ? 'all' : 'the newest'} ${formatCount(sampledEvents)} events of ${days}.`;
}

interface FieldsProps {
  readonly idApp: string;
  readonly days: Days;
  readonly kinds: readonly { readonly kind: string }[];
}

function FieldsCard({ idApp, days, kinds }: FieldsProps) {
  const [chosen, setChosen] = useState<string>();
  const [showsEmpty, setShowsEmpty] = useState(false);
  const kind = kinds.some((each) => each.kind === chosen) ? chosen : kinds[0]?.kind;
  const loaded = useLoaded(
    async (signal) =>
      kind === undefined
        ? undefined
        : await callApi('/api/data/v1/fields.json', { callArguments: { idApp, kind, ...datesOf(days) }, signal }),
    [idApp, kind, days.period, days.dateTo],
  );
  const { data, isLoading } = loaded;
  const { found: matching, field } = useSearch('Find a field', data?.fields ?? [], ({ name, column, description }) =>
    [name, column, description].join('\n'),
  );
  if (kind === undefined) return null;
  const found = matching.toSorted((a, b) => b.nonNullEvents - a.nonNullEvents);
  const empty = found.filter(({ nonNullEvents }) => nonNullEvents === 0).length;
  const shown = showsEmpty ? found : found.filter(({ nonNullEvents }) => nonNullEvents > 0);
  const hasEvents = data !== undefined && data.sampledEvents > 0;
  const controls = (
    <div class="row">
      <Select
        label="Event type"
        kind="hidden inline"
        value={kind}
        choices={kinds.map((each) => [each.kind, nameOf(each.kind)] as const)}
        onChange={(event) => setChosen(event.currentTarget.value)}
      />
      {field}
    </div>
  );
  return (
    <Card id="fields" title="Field fill rate" isBusy={isLoading} beside={controls}>
      <LoadingState of={loaded} wait="Counting…" />
      {data !== undefined && <Note>{describeBasis(data)}</Note>}
      {hasEvents && shown.length > 0 && (
        <Table
          label="Fill rate by field"
          kind="tall"
          columns={fieldColumns(data.sampledEvents)}
          rows={shown}
          keyOf={({ column }) => column}
        />
      )}
      {hasEvents && empty > 0 && (
        <Check
          kind="small"
          label={`Show fields that are empty or only have the default (${formatCount(empty)})`}
          checked={showsEmpty}
          onChange={() => setShowsEmpty(!showsEmpty)}
        />
      )}
    </Card>
  );
}

function AppData({ idApp }: { readonly idApp: string }) {
  const shown = useDays(idApp);
  const { days, events } = shown;
  const volume = useVolume(days, idApp);
  return (
    <>
      <AppHead page="data" idApp={idApp} />
      <div class="stack">
        {events === 0 ? (
          <FirstEventCard idApp={idApp} />
        ) : (
          <>
            <VolumeCard volume={volume} shown={shown} />
            <UsageCard idApp={idApp} days={days} />
            <FieldsCard idApp={idApp} days={days} kinds={kindsOf(volume.data)} />
            <CatalogueCard idApp={idApp} days={days} />
          </>
        )}
      </div>
    </>
  );
}

function AllData() {
  const shown = useDays();
  const volume = useVolume(shown.days);
  return (
    <>
      <PageHead title="Data" />
      <div class="stack">
        <VolumeCard volume={volume} shown={shown} />
        <AppsCard page="data" />
      </div>
    </>
  );
}

/** Shows apps, events by day and kind, field fill rates and custom events. */
export function DataPage() {
  const [, idApp] = path.value.split('/');
  return idApp === undefined ? <AllData /> : <AppData key={idApp} idApp={idApp} />;
}
