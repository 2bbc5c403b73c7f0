import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Button } from '../components/controls.tsx';
import { formatCount, formatDate, formatTime } from '../components/format.ts';
import {
  Card,
  ErrorMessage,
  LoadingState,
  Note,
  pageSize,
  ShareBar,
  Table,
  useSearch,
  type TableColumn,
} from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { datesOf, type Days } from './volume.tsx';

/** The custom events of an app. Without a version no catalogue exists yet. */
type Catalogue = AnswerOf<'/api/catalogue/v1/get.json'>;
type CatalogueEvent = Catalogue['customEvents'][number];
type CatalogueParameter = NonNullable<CatalogueEvent['parameters']>[number];

/** Keys of the custom events of an app, or of one of them with its parameters. */
interface CatalogueKeys {
  readonly idApp: string;
  readonly days: Days;
  readonly customEventName?: string;
  /** Days of each event in the response; none by default. */
  readonly daysOfEvent?: number;
}

export function loadCatalogue(
  { days, daysOfEvent = 0, ...keys }: CatalogueKeys,
  signal: AbortSignal,
): Promise<Catalogue> {
  const callArguments = { ...keys, ...datesOf(days), days: String(daysOfEvent) };
  return callApi('/api/catalogue/v1/get.json', { callArguments, signal });
}

const dateOf = (time: string): string => formatDate(time.slice(0, 10));

const parameterColumns = (sampledEvents: number): readonly TableColumn<CatalogueParameter>[] => [
  ['Parameter', ({ name }) => <code>{name}</code>],
  [
    'Type',
    ({ type, untyped }) => (
      <>
        {type}
        {untyped > 0 && <div class="muted small">{formatCount(untyped)} of another type</div>}
      </>
    ),
  ],
  ['Share of events', ({ seen }) => <ShareBar share={sampledEvents === 0 ? 0 : seen / sampledEvents} />],
  ['Distinct values', ({ distinctValues }) => `about ${formatCount(distinctValues)}`, 'number wide-only'],
  [
    'Examples',
    ({ examples }) =>
      examples.length === 0 ? (
        <span class="muted small">unique per event</span>
      ) : (
        <span class="examples">
          {examples.map((example) => (
            <code key={example}>{example === '' ? '(empty)' : example}</code>
          ))}
        </span>
      ),
  ],
  [
    'First and last seen',
    ({ firstSeen, lastSeen }) => `${dateOf(firstSeen)} to ${dateOf(lastSeen)}`,
    'wide-only nowrap small',
  ],
];

function Parameters({ event }: { readonly event: CatalogueEvent }) {
  const { sampledEvents, sealed, parameters = [], moreParameters } = event;
  const { found, field } = useSearch('Find a parameter', parameters, ({ name }) => name);
  if (sealed === 0) return <p class="muted">No sealed events yet.</p>;
  if (parameters.length === 0) return <p class="muted">No parameters.</p>;
  return (
    <>
      <div class="spread">
        <Note>
          From {formatCount(sampledEvents)} sampled of {formatCount(sealed)} sealed events, all days.
        </Note>
        {field}
      </div>
      {found.length === 0 ? (
        <p class="muted">No parameters match.</p>
      ) : (
        <Table
          label="Parameters"
          kind="tall parameters"
          columns={parameterColumns(sampledEvents)}
          rows={found}
          keyOf={({ name }) => name}
        />
      )}
      {moreParameters > 0 && <Note>{formatCount(moreParameters)} more parameters are not listed.</Note>}
    </>
  );
}

function ParametersPart({ idApp, days, customEventName }: CatalogueKeys & { readonly customEventName: string }) {
  const { data, error, isLoading } = useLoaded(
    (signal) => loadCatalogue({ idApp, days, customEventName }, signal),
    [idApp, days.period, days.dateTo, customEventName],
  );
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => heading.current?.focus(), []);
  const event = data?.customEvents[0];
  return (
    <div class="stack part" role="group" aria-labelledby="parameters">
      <h3 id="parameters" ref={heading} tabIndex={-1}>
        Parameters of {customEventName}
      </h3>
      <ErrorMessage error={error} />
      {isLoading && <p class="muted">Loading…</p>}
      {data !== undefined && event === undefined && <p class="muted">No longer in the catalogue.</p>}
      {event !== undefined && <Parameters event={event} />}
    </div>
  );
}

const eventColumns = (
  chosen: string | undefined,
  onChoose: (name: string) => void,
): readonly TableColumn<CatalogueEvent>[] => [
  [
    'Custom event',
    ({ customEventName: name }) => (
      <button class="link" type="button" aria-pressed={name === chosen} onClick={() => onChoose(name)}>
        {name}
      </button>
    ),
  ],
  ['Events', ({ events }) => formatCount(events), 'number'],
  ['Last seen', ({ lastSeen }) => dateOf(lastSeen), 'wide-only nowrap'],
];

function Notices({ notices }: Pick<Catalogue, 'notices'>) {
  if (notices.length === 0) return null;
  return (
    <details>
      <summary>Notices: {formatCount(notices.length)}</summary>
      <ul class="notices">
        {notices.map(({ id, date, customEventName, what }) => (
          <li key={id}>
            <span class="muted small nowrap">{formatDate(date)}</span>{' '}
            {customEventName !== undefined && <b>{customEventName}: </b>}
            {what}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Remarks({ version, more, missingFiles, isComplete, sealedUntil }: Catalogue) {
  return (
    <>
      {version === undefined && (
        <Note>
          Parameters are not available yet. They are counted when events are sealed, about an hour after the first ones
          arrive.
        </Note>
      )}
      {version !== undefined && sealedUntil !== undefined && (
        <Note>
          Parameters as of {formatTime(Date.parse(sealedUntil) / 1000)}; later events are counted, but not analyzed yet.
        </Note>
      )}
      {!isComplete && <Note>Counts are incomplete: the catalogue is being built.</Note>}
      {more.names > 0 && (
        <Note>
          {formatCount(more.names)} more names, with {formatCount(more.events)} events, are not listed.
        </Note>
      )}
      {missingFiles > 0 && <Note>{formatCount(missingFiles)} data files are not analyzed yet.</Note>}
    </>
  );
}

/** Lists an app's custom events of the period, and the parameters of the selected one. */
export function CatalogueCard({ idApp, days }: { readonly idApp: string; readonly days: Days }) {
  const loaded = useLoaded((signal) => loadCatalogue({ idApp, days }, signal), [idApp, days.period, days.dateTo]);
  const { data, isLoading } = loaded;
  const [chosen, setChosen] = useState<string>();
  const [shown, setShown] = useState(pageSize);
  const events = data?.customEvents;
  const { found, field } = useSearch('Find a custom event', events ?? [], ({ customEventName: name }) => name);
  return (
    <Card
      id="catalogue"
      title="Custom events"
      count={events?.length}
      isBusy={isLoading}
      beside={(events?.length ?? 0) > 0 && field}
    >
      <LoadingState of={loaded} />
      {data && (
        <>
          <Notices notices={data.notices} />
          {found.length > 0 && (
            <Table
              label="Custom events"
              kind="tall"
              columns={eventColumns(chosen, setChosen)}
              rows={found.slice(0, shown)}
              keyOf={({ customEventName }) => customEventName}
              kindOf={({ customEventName }) => (customEventName === chosen ? 'chosen' : undefined)}
            />
          )}
          {data.customEvents.length > 0 && found.length === 0 && <p class="muted">No custom events match.</p>}
          {data.customEvents.length === 0 && <p class="muted">No custom events in this period.</p>}
          {found.length > shown && (
            <Button kind="small fit" onClick={() => setShown(shown + pageSize)}>
              Show {formatCount(Math.min(pageSize, found.length - shown))} more of {formatCount(found.length)}
            </Button>
          )}
          <Remarks {...data} />
        </>
      )}
      {chosen !== undefined && <ParametersPart key={chosen} idApp={idApp} days={days} customEventName={chosen} />}
    </Card>
  );
}
