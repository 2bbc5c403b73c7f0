import { useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Button, Input, Select } from '../components/controls.tsx';
import { formatTime } from '../components/format.ts';
import { EmptyCard, ErrorMessage, LoadingState, MessageBox, Note, useKeptFocus } from '../components/layout.tsx';
import { useDestinations } from '../components/labels.tsx';
import { useAction } from '../components/load.ts';

type Destination = AnswerOf<'/api/destination/v1/list.json'>['destinations'][number];
type Delivery = NonNullable<AnswerOf<'/api/raw/v1/export/get.json'>['delivery']>;

const kinds = [
  ['s3', 'S3-compatible bucket'],
  ['sftp', 'SFTP folder'],
] as const;

/** Fields of a new destination by kind: name, label, placeholder; optional if the label says so. */
const fields: Readonly<Record<string, readonly (readonly [name: string, label: string, placeholder: string])[]>> = {
  s3: [
    ['endpoint', 'Server', 'https://s3.eu-central-1.amazonaws.com'],
    ['region', 'Region (optional)', 'us-east-1'],
    ['bucket', 'Bucket', 'warehouse'],
    ['prefix', 'Prefix (optional)', 'raw/'],
    ['accessKeyId', 'Access key ID', ''],
  ],
  sftp: [
    ['host', 'Host', 'sftp.example.com'],
    ['port', 'Port (optional)', '22'],
    ['username', 'User', ''],
    ['folder', 'Folder (optional)', 'incoming'],
    ['hostKey', 'Fingerprint of the server', 'SHA256:…'],
  ],
};

function readForm(form: EventTarget | null): Readonly<Record<string, string>> {
  if (!(form instanceof HTMLFormElement)) return {};
  const entries = [...new FormData(form)].flatMap(([name, value]) =>
    typeof value === 'string' && value !== '' ? [[name, value] as const] : [],
  );
  return Object.fromEntries(entries);
}

function AddForm({ onAdded }: { readonly onAdded: () => void }) {
  const [kind, setKind] = useState('s3');
  const [added, setAdded] = useState(0);
  const { isBusy, error, act } = useAction();

  async function add(event: Event): Promise<void> {
    event.preventDefault();
    const callArguments = { ...readForm(event.currentTarget), kind };
    const isDone = await act(() => callApi('/api/destination/v1/create.json', { method: 'POST', callArguments }));
    if (!isDone) return;
    setAdded(added + 1);
    onAdded();
  }

  return (
    <form key={added} class="card stack" onSubmit={(event) => void add(event)}>
      <Note>
        Exports and schedules can be delivered to a bucket or a folder of yours: each file once, the manifest last.
      </Note>
      <div class="columns-4">
        <Input label="Name" name="name" required maxLength={100} />
        <Select label="Kind" choices={kinds} value={kind} onChange={(event) => setKind(event.currentTarget.value)} />
        {(fields[kind] ?? []).map(([name, label, placeholder]) => (
          <Input
            key={name}
            label={label}
            name={name}
            placeholder={placeholder}
            required={!label.includes('optional')}
            autocomplete="off"
          />
        ))}
        <Input
          label={kind === 's3' ? 'Secret access key' : 'Password or private key'}
          name="secret"
          type="password"
          required
          autocomplete="new-password"
        />
      </div>
      <ErrorMessage error={error} />
      <div class="row">
        <Button kind="primary" type="submit" aria-disabled={isBusy}>
          Add destination
        </Button>
      </div>
    </form>
  );
}

function DestinationCard({ of, onChange }: { readonly of: Destination; readonly onChange: () => void }) {
  const { idDestination, name, place, timestampCreated } = of;
  const [change, setChange] = useState<'secret' | 'delete'>();
  const { isBusy, error, act } = useAction();
  const remove = (): void =>
    void act(() =>
      callApi('/api/destination/v1/delete.json', { method: 'POST', callArguments: { idDestination } }),
    ).then(onChange);

  async function replace(event: Event): Promise<void> {
    event.preventDefault();
    const callArguments = { ...readForm(event.currentTarget), idDestination };
    if (await act(() => callApi('/api/destination/v1/secret.json', { method: 'POST', callArguments })))
      setChange(undefined);
  }

  return (
    <li class="card stack">
      <h2 tabIndex={-1}>{name}</h2>
      <p class="breaks">
        <code>{place}</code>
      </p>
      <p class="muted small">Added {formatTime(Number(timestampCreated))}.</p>
      <ErrorMessage error={error} />
      <div class="row">
        {(['secret', 'delete'] as const).map((each) => (
          <Button
            key={each}
            kind="small"
            aria-expanded={change === each}
            onClick={() => setChange(change === each ? undefined : each)}
          >
            {each === 'secret' ? 'Replace secret…' : 'Delete…'}
          </Button>
        ))}
        {change === 'delete' && (
          <Button kind="danger small" aria-disabled={isBusy} onClick={remove}>
            Delete destination
          </Button>
        )}
      </div>
      {change === 'secret' && (
        <form class="inset stack" onSubmit={(event) => void replace(event)}>
          <Input label="New secret" name="secret" type="password" required autocomplete="new-password" />
          <Button kind="primary small fit" type="submit" aria-disabled={isBusy}>
            Replace secret
          </Button>
        </form>
      )}
    </li>
  );
}

/** Lists the destinations of the account, and adds and changes them. */
export function DestinationList() {
  const loaded = useDestinations();
  const { data, error, reload } = loaded;
  const kept = useKeptFocus();
  if (data === undefined) return <LoadingState of={loaded} />;
  return (
    <section {...kept} class="stack" aria-label="Destinations">
      <ErrorMessage error={error} />
      <AddForm onAdded={reload} />
      {data.damaged !== undefined && (
        <MessageBox kind="warning">
          {data.damaged.length} more destinations cannot be read. An operator can restore them from a backup.
        </MessageBox>
      )}
      {data.destinations.length === 0 && (
        <EmptyCard title="No destinations yet">
          <p>The operator must allow the server in TRIBUTARY_DELIVERY_ALLOW.</p>
        </EmptyCard>
      )}
      <ul class="cards">
        {data.destinations.map((destination) => (
          <DestinationCard key={destination.idDestination} of={destination} onChange={reload} />
        ))}
      </ul>
    </section>
  );
}

const colours = { Waiting: 'busy', Delivered: 'good', Failed: 'bad' } as const;

/** Shows the delivery of an export. */
export function DeliveryState({ delivery }: { readonly delivery: Delivery }) {
  const { idDestination, status, files, filesInTotal, error, timestampDelivered, timestampNextAttempt } = delivery;
  const loaded = useDestinations();
  const found = loaded.data?.destinations.find((one) => one.idDestination === idDestination);
  return (
    <div class="stack tight">
      <div class="row">
        <span class={`badge ${colours[status]}`}>{status === 'Waiting' ? 'To be delivered' : status}</span>
        <span>{found === undefined ? idDestination : `${found.name}, ${found.place}`}</span>
      </div>
      <p class="muted small" role="status">
        {files} of {filesInTotal ?? 0} files delivered
        {timestampDelivered !== undefined && `, ${formatTime(Number(timestampDelivered))}`}
        {timestampNextAttempt !== undefined && `, next attempt ${formatTime(Number(timestampNextAttempt))}`}
      </p>
      {error !== undefined && <MessageBox kind="warning">{error}</MessageBox>}
    </div>
  );
}
