import { useState } from 'preact/hooks';
import { hrefOf } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { Button, Input } from '../components/controls.tsx';
import { formatAway, formatTime } from '../components/format.ts';
import { EmptyCard, ErrorMessage, LoadingState, MessageBox, Note, useKeptFocus } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';
import { NewSecretDialog, type NewSecret } from '../operations/managed-list.tsx';

type Webhook = AnswerOf<'/api/webhook/v1/list.json'>['webhooks'][number];
type Delivery = AnswerOf<'/api/webhook/v1/deliveries.json'>['deliveries'][number];

/** Refresh interval of the page, ms. */
const refreshMs = 5000;
/** Hours for which both secrets sign. */
const rotationHours = '24';

const titles: Readonly<Record<Delivery['type'], string>> = {
  'export.finished': 'Export finished',
  'export.failed': 'Export failed',
  'catalogue.notice': 'Catalogue notice',
  'schedule.stopped': 'Schedule stopped',
  'webhook.test': 'Test message',
};

function Subject({ type, subject }: Pick<Delivery, 'type' | 'subject'>) {
  if (subject === undefined) return null;
  if (type === 'export.finished' || type === 'export.failed')
    return <a href={hrefOf(`exports/${subject}`)}>#{subject}</a>;
  return <code class="small">{subject}</code>;
}

function DeliveryBadge({ delivery }: { readonly delivery: Pick<Delivery, 'isDelivered' | 'responseCode'> }) {
  const { isDelivered, responseCode } = delivery;
  return (
    <span class={`badge ${isDelivered ? 'good' : 'bad'}`}>
      {responseCode === undefined ? 'No response' : `HTTP ${responseCode}`}
    </span>
  );
}

interface DeliveriesProps {
  readonly idWebhook: string;
  readonly state: unknown;
  readonly onChange: () => void;
}

/** Shows the last messages of a webhook, each with a button to send it again. */
function Deliveries({ idWebhook, state, onChange }: DeliveriesProps) {
  const { isBusy, error, act } = useAction();
  const loaded = useLoaded(
    (signal) => callApi('/api/webhook/v1/deliveries.json', { callArguments: { idWebhook }, signal }),
    [idWebhook, state],
    () => refreshMs,
  );
  if (loaded.data === undefined) return <LoadingState of={loaded} />;
  const { deliveries } = loaded.data;
  if (deliveries.length === 0) return <p class="muted">No messages yet.</p>;
  const resend = (idMessage: string): void => {
    const callArguments = { idWebhook, idMessage };
    void act(() => callApi('/api/webhook/v1/resend.json', { method: 'POST', callArguments })).then(() => {
      loaded.reload();
      onChange();
    });
  };
  return (
    <>
      <ErrorMessage error={error} />
      <ul class="runs" aria-label="Last messages">
        {deliveries.map((delivery) => (
          <li key={delivery.idMessage}>
            <div class="spread">
              <span class="row">
                {titles[delivery.type]} <Subject {...delivery} />
              </span>
              <DeliveryBadge delivery={delivery} />
            </div>
            <div class="spread">
              <span class="muted small">
                {formatTime(Number(delivery.timestampLastAttempt))}
                {delivery.attempts > 1 && `, ${delivery.attempts} attempts`}
                {delivery.error !== undefined && `, ${delivery.error}`}
              </span>
              <Button
                kind="small"
                aria-disabled={isBusy}
                aria-label={`Resend ${titles[delivery.type]} ${delivery.subject ?? ''}`}
                onClick={() => resend(delivery.idMessage)}
              >
                Resend
              </Button>
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}

/** A change that asks for a confirmation. */
type Question = 'rotate' | 'delete';

interface ConfirmationProps {
  readonly question: Question;
  readonly isBusy: boolean;
  readonly onConfirm: () => void;
}

function Confirmation({ question, isBusy, onConfirm }: ConfirmationProps) {
  const isRotation = question === 'rotate';
  return (
    <div class="inset stack">
      <p class="small">
        {isRotation
          ? `The former secret also signs for ${rotationHours} hours. Give the receiver the new one until then.`
          : 'The webhook no longer receives messages.'}
      </p>
      <Button kind={`${isRotation ? 'primary' : 'danger'} small fit`} aria-disabled={isBusy} onClick={onConfirm}>
        {isRotation ? 'Rotate secret' : 'Delete webhook'}
      </Button>
    </div>
  );
}

/** Describes the state of a webhook. */
function WebhookState({ webhook }: { readonly webhook: Webhook }) {
  const { timestampCreated, timestampLastAttempt, lastError, timestampFormerSecretEnds } = webhook;
  return (
    <>
      <p class="muted small">
        Added {formatTime(Number(timestampCreated))}.
        {timestampLastAttempt !== undefined && ` Last message ${formatAway(Number(timestampLastAttempt))}.`}
      </p>
      {lastError !== undefined && <MessageBox kind="warning">{lastError}</MessageBox>}
      {timestampFormerSecretEnds !== undefined && (
        <Note>Both secrets sign until {formatTime(Number(timestampFormerSecretEnds))}.</Note>
      )}
    </>
  );
}

interface CardProps {
  readonly webhook: Webhook;
  readonly onChange: () => void;
  readonly onSecret: (newSecret: NewSecret) => void;
}

function WebhookCard({ webhook, onChange, onSecret }: CardProps) {
  const { idWebhook, url, timestampLastAttempt, lastError } = webhook;
  const { isBusy, error, act } = useAction();
  const [tested, setTested] = useState<Delivery>();
  const [areShown, setShown] = useState(false);
  const [question, setQuestion] = useState<Question>();
  const callArguments = { idWebhook };

  const work = (run: () => Promise<unknown>): void => void act(run).then(onChange);
  const test = (): void =>
    work(async () => setTested(await callApi('/api/webhook/v1/test.json', { method: 'POST', callArguments })));
  const rotate = (): void =>
    work(async () => {
      const given = { idWebhook, hours: rotationHours };
      const { secret } = await callApi('/api/webhook/v1/rotate.json', { method: 'POST', callArguments: given });
      setQuestion(undefined);
      onSecret({ title: 'New webhook secret', id: ['URL', url], value: secret });
    });
  const remove = (): void => work(() => callApi('/api/webhook/v1/delete.json', { method: 'POST', callArguments }));
  const ask = (asked: Question): void => setQuestion(question === asked ? undefined : asked);

  return (
    <li class="card stack">
      <div class="spread">
        <h2 tabIndex={-1} class="breaks">
          {url}
        </h2>
        {timestampLastAttempt !== undefined && (
          <span class={`badge ${lastError === undefined ? 'good' : 'bad'}`}>
            {lastError === undefined ? 'Delivered' : 'Failing'}
          </span>
        )}
      </div>
      <WebhookState webhook={webhook} />
      <p class="small" role="status">
        {tested !== undefined &&
          `Test message: ${tested.isDelivered ? `delivered, HTTP ${tested.responseCode}` : tested.error}`}
      </p>
      <ErrorMessage error={error} />
      <div class="row">
        <Button kind="small" aria-disabled={isBusy} onClick={test}>
          Send test message
        </Button>
        <Button kind="small" aria-expanded={areShown} onClick={() => setShown(!areShown)}>
          Last messages
        </Button>
        <Button kind="small" aria-expanded={question === 'rotate'} onClick={() => ask('rotate')}>
          Rotate secret…
        </Button>
        <Button kind="small" aria-expanded={question === 'delete'} onClick={() => ask('delete')}>
          Delete…
        </Button>
      </div>
      {question !== undefined && (
        <Confirmation question={question} isBusy={isBusy} onConfirm={question === 'rotate' ? rotate : remove} />
      )}
      {areShown && (
        <Deliveries idWebhook={idWebhook} state={`${timestampLastAttempt} ${tested?.idMessage}`} onChange={onChange} />
      )}
    </li>
  );
}

function AddForm({ onAdded }: { readonly onAdded: (newSecret: NewSecret) => void }) {
  const [url, setUrl] = useState('');
  const { isBusy, error, act } = useAction();

  async function add(event: Event): Promise<void> {
    event.preventDefault();
    await act(async () => {
      const callArguments = { url: url.trim() };
      const { secret, url: added } = await callApi('/api/webhook/v1/create.json', { method: 'POST', callArguments });
      setUrl('');
      onAdded({ title: 'Webhook added', id: ['URL', added], value: secret });
    });
  }

  return (
    <form class="card stack" onSubmit={(event) => void add(event)}>
      <Note>
        A webhook receives a signed message when an export ends, a schedule stops, or the catalogue has a notice.
      </Note>
      <div class="row add-row">
        <Input
          label="URL"
          type="url"
          required
          placeholder="https://hooks.example.com/exports"
          value={url}
          onInput={(event) => setUrl(event.currentTarget.value)}
        />
        <Button kind="primary" type="submit" aria-disabled={isBusy}>
          Add webhook
        </Button>
      </div>
      <ErrorMessage error={error} />
    </form>
  );
}

/** Lists the webhooks of the account with their last messages, and adds, tests and changes them. */
export function WebhookList() {
  const [newSecret, setSecret] = useState<NewSecret>();
  const loaded = useLoaded(
    (signal) => callApi('/api/webhook/v1/list.json', { signal }),
    [],
    () => refreshMs,
  );
  const { data, error, reload } = loaded;
  const kept = useKeptFocus();
  if (data === undefined) return <LoadingState of={loaded} />;
  const onSecret = (made: NewSecret): void => {
    setSecret(made);
    reload();
  };
  return (
    <section {...kept} class="stack" aria-label="Webhooks">
      <ErrorMessage error={error} />
      <AddForm onAdded={onSecret} />
      {data.damaged !== undefined && (
        <MessageBox kind="warning">
          {data.damaged.length} more webhooks cannot be read. An operator can restore them from a backup.
        </MessageBox>
      )}
      {data.webhooks.length === 0 && (
        <EmptyCard title="No webhooks yet">
          <p>Add the URL of a server of yours, then send it a test message.</p>
        </EmptyCard>
      )}
      <ul class="cards">
        {data.webhooks.map((webhook) => (
          <WebhookCard key={webhook.idWebhook} webhook={webhook} onChange={reload} onSecret={onSecret} />
        ))}
      </ul>
      {newSecret !== undefined && <NewSecretDialog newSecret={newSecret} onClose={() => setSecret(undefined)} />}
    </section>
  );
}
