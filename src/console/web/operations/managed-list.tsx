import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { isShownOnce } from '../shell/session.ts';
import { Button, CopyButton, Field } from '../components/controls.tsx';
import {
  Card,
  ErrorMessage,
  DefinitionList,
  LoadingState,
  MessageBox,
  usePagedList,
  useModal,
} from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useModal();
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A new token or secret, with the id of its app or user. It exists only in this page's memory. */
export interface NewSecret {
  readonly title: string;
  readonly id: readonly [name: string, value: string];
  readonly value: string;
}

/** Shows a new token or secret once. */
export function NewSecretDialog({
  newSecret: { title, id, value },
  onClose,
}: {
  readonly newSecret: NewSecret;
  readonly onClose: () => void;
}) {
  useLayoutEffect(() => {
    isShownOnce.value = true;
    return () => void (isShownOnce.value = false);
  }, []);
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <DefinitionList of={[id]} />
        <Field label="Copy this now">
          <input class="mono" readOnly value={value} onFocus={(event) => event.currentTarget.select()} />
        </Field>
        <MessageBox kind="warning">Store it now. You won't be able to see it again.</MessageBox>
        <div class="row">
          <CopyButton text={value} kind="primary" />
          <Button onClick={onClose}>Done</Button>
        </div>
      </div>
    </Dialog>
  );
}

/** A change: the dialog that asks for it, and the call that makes it with the filled-in fields. */
export interface RowChange {
  readonly title: string;
  readonly action: string;
  readonly isDangerous?: true;
  readonly content: ComponentChildren;
  readonly make: (fields: Readonly<Record<string, string>>) => Promise<NewSecret | undefined>;
}

interface ChangeProps {
  readonly change: RowChange;
  readonly onDone: (newSecret: NewSecret | undefined) => void;
  readonly onClose: () => void;
}

function ChangeDialog({ change, onDone, onClose }: ChangeProps) {
  const { title, action, isDangerous, content, make } = change;
  const { isBusy, error, act } = useAction();

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const formEntries = [...new FormData(event.currentTarget)].flatMap(([name, value]) =>
      typeof value === 'string' ? [[name, value.trim()] as const] : [],
    );
    await act(async () => onDone(await make(Object.fromEntries(formEntries.filter(([, value]) => value !== '')))));
  }

  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        {content}
        <ErrorMessage error={error} />
        <div class="row">
          <Button kind={isDangerous ? 'danger' : 'primary'} type="submit" aria-disabled={isBusy}>
            {action}
          </Button>
          <Button kind="plain" onClick={onClose}>
            Cancel
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** A button of a row: its text, the start of its accessible name, and the change that it asks for. */
export type RowAction = readonly [text: string, label: string, change: RowChange, kind?: 'plain'];

export interface Row {
  readonly id: string;
  readonly title: string;
  readonly about: ComponentChildren;
  readonly content: (ask: (rowChange: RowChange) => void) => ComponentChildren;
  readonly actions: readonly RowAction[];
}

interface ManagedListProps {
  readonly id: string;
  readonly title: string;
  /** Label of the search. */
  readonly find: string;
  readonly add: RowChange;
  /** Text of an empty list. */
  readonly nothing: string;
  readonly load: (
    callArguments: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ) => Promise<{ readonly rows: readonly Row[]; readonly total: number }>;
  /** Dependencies of `load` besides the search. */
  readonly keys?: readonly unknown[];
  /** Renders more controls; `toStart` shows the first page of the list. */
  readonly controls?: (toStart: () => void) => ComponentChildren;
}

/** A searchable list of all accounts with the dialogs that change it. */
export function ManagedList({ id, title, find, add, nothing, load, keys = [], controls }: ManagedListProps) {
  const { callArguments, toStart, field, pager } = usePagedList(find);
  const [requestedChange, setAsked] = useState<RowChange>();
  const [newSecret, setMade] = useState<NewSecret>();
  const loaded = useLoaded((signal) => load(callArguments, signal), [...Object.values(callArguments), ...keys]);
  const { data, isLoading, reload } = loaded;
  const onDone = (shown: NewSecret | undefined): void => {
    setAsked(undefined);
    setMade(shown);
    reload();
  };
  const beside = (
    <div class="row">
      {controls?.(toStart)}
      {field}
      <Button kind="primary" onClick={() => setAsked(add)}>
        {add.title}
      </Button>
    </div>
  );
  return (
    <Card id={id} title={title} count={data?.total} isBusy={isLoading} beside={beside}>
      <LoadingState of={loaded} />
      {data?.total === 0 && !isLoading && <p class="muted">{nothing}</p>}
      {data !== undefined && data.rows.length > 0 && (
        <ul class="items">
          {data.rows.map((row) => (
            <li key={row.id}>
              <div class="item-head">
                <span class="item-title">{row.title}</span>
                <span class="muted small">{row.about}</span>
              </div>
              {row.content(setAsked)}
              <div class="row item-actions">
                {row.actions.map(([text, label, rowChange, kind = '']) => (
                  <Button
                    key={text}
                    kind={`small ${kind}`}
                    aria-label={`${label} ${row.id}`}
                    onClick={() => setAsked(rowChange)}
                  >
                    {text}
                  </Button>
                ))}
              </div>
            </li>
          ))}
        </ul>
      )}
      {pager(data?.total)}
      {requestedChange !== undefined && (
        <ChangeDialog change={requestedChange} onDone={onDone} onClose={() => setAsked(undefined)} />
      )}
      {newSecret !== undefined && <NewSecretDialog newSecret={newSecret} onClose={() => setMade(undefined)} />}
    </Card>
  );
}
