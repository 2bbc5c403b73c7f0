import type { ComponentChildren, ComponentType } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { isShownOnce } from '../frame/session.ts';
import { Button, CopyButton, Field } from '../parts/controls.tsx';
import { Card, ErrorMessage, LoadState, Message, useListPart, useModal } from '../parts/layout.tsx';
import { useAction, useLoaded } from '../parts/load.ts';

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A dialog that is open for as long as it is there; Escape closes it, and focus goes back to where it was. */
function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useModal();
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A token or a secret that was just made. */
export interface Made {
  readonly title: string;
  /** What it goes with: the app's or the user's id. */
  readonly id: readonly [name: string, value: string];
  readonly value: string;
}

/** Shows a token or a secret, this once: it is in this page's memory alone, and goes with the dialog. */
function MadeDialog({ made: { title, id, value }, onClose }: { readonly made: Made; readonly onClose: () => void }) {
  useLayoutEffect(() => {
    isShownOnce.value = true;
    return () => void (isShownOnce.value = false);
  }, []);
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <dl class="facts">
          <div class="fact">
            <dt>{id[0]}</dt>
            <dd>{id[1]}</dd>
          </div>
        </dl>
        <Field label="Shown this once">
          <input class="mono" readOnly value={value} onFocus={(event) => event.currentTarget.select()} />
        </Field>
        <Message kind="warning">
          Keep it now: nobody can show it again, and another one has to be made where it is lost.
        </Message>
        <div class="row">
          <CopyButton text={value} kind="primary" />
          <Button onClick={onClose}>Done</Button>
        </div>
      </div>
    </Dialog>
  );
}

interface ChangeProps extends DialogProps {
  /** What the button says. */
  readonly action: string;
  readonly isDangerous?: boolean;
  readonly onSubmit: (given: Readonly<Record<string, string>>) => Promise<void>;
}

/** A change, with its form or question; it closes when it was made, and says what is wrong where it was not. */
export function ChangeDialog({ action, isDangerous = false, onSubmit, children, ...shared }: ChangeProps) {
  const { isBusy, error, act } = useAction();

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const given = [...new FormData(event.currentTarget)].flatMap(([name, value]) =>
      typeof value === 'string' ? [[name, value.trim()] as const] : [],
    );
    await act(() => onSubmit(Object.fromEntries(given.filter(([, value]) => value !== ''))));
  }

  return (
    <Dialog {...shared}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        {children}
        <ErrorMessage error={error} />
        <div class="row">
          <Button kind={isDangerous ? 'danger' : 'primary'} type="submit" aria-disabled={isBusy}>
            {action}
          </Button>
          <Button kind="plain" onClick={shared.onClose}>
            Cancel
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** What is given to the dialog of a change that was asked for. */
export interface AskedProps<Change> {
  readonly asked: Change;
  /** `made`: a token or a secret to show. */
  readonly onDone: (made?: Made) => void;
  readonly onClose: () => void;
}

interface Answer<Row> {
  readonly rows: readonly Row[];
  readonly total: number;
}

interface ManagedListProps<Row, Change> {
  readonly id: string;
  readonly title: string;
  /** Label of the search. */
  readonly find: string;
  /** Button that adds a row. */
  readonly add: string;
  /** What is said where there are no rows. */
  readonly nothing: string;
  readonly load: (given: Readonly<Record<string, string>>, signal: AbortSignal) => Promise<Answer<Row>>;
  /** What `load` depends on beside the search. */
  readonly keys?: readonly unknown[];
  /** More controls; `toStart` shows the first part of the list again. */
  readonly controls?: (toStart: () => void) => ComponentChildren;
  readonly drawRow: (row: Row, ask: (asked: Change) => void) => ComponentChildren;
  readonly dialog: ComponentType<AskedProps<Change>>;
}

/** A list of all accounts, its search, and the dialogs that change it. */
export function ManagedList<Row, Change extends { readonly kind: string }>({
  id,
  title,
  find,
  add,
  nothing,
  load,
  keys = [],
  controls,
  drawRow,
  dialog: ChangeOf,
}: ManagedListProps<Row, Change | { readonly kind: 'add' }>) {
  const { given, toStart, field, pager } = useListPart(find);
  const [asked, setAsked] = useState<Change | { readonly kind: 'add' }>();
  const [made, setMade] = useState<Made>();
  const loaded = useLoaded((signal) => load(given, signal), [...Object.values(given), ...keys]);
  const { data, isLoading, reload } = loaded;
  const onDone = (shown?: Made): void => {
    setAsked(undefined);
    setMade(shown);
    reload();
  };
  const beside = (
    <div class="row">
      {controls?.(toStart)}
      {field}
      <Button kind="primary" onClick={() => setAsked({ kind: 'add' })}>
        {add}
      </Button>
    </div>
  );
  return (
    <Card id={id} title={title} count={data?.total} isBusy={isLoading} beside={beside}>
      <LoadState of={loaded} />
      {data?.total === 0 && !isLoading && <p class="muted">{nothing}</p>}
      {data !== undefined && data.rows.length > 0 && (
        <ul class="items">{data.rows.map((row) => drawRow(row, setAsked))}</ul>
      )}
      {pager(data?.total)}
      {asked !== undefined && <ChangeOf asked={asked} onDone={onDone} onClose={() => setAsked(undefined)} />}
      {made !== undefined && <MadeDialog made={made} onClose={() => setMade(undefined)} />}
    </Card>
  );
}
