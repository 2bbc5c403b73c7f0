import { useState } from 'preact/hooks';
import type { CallArguments } from '../frame/call-arguments.ts';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { session } from '../frame/session.ts';
import { formatCount } from '../parts/format.ts';
import { useKeptFocus } from '../parts/kept-focus.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { Pager } from '../parts/pager.tsx';
import { SearchField } from '../parts/search-field.tsx';
import { ChangeDialog, MadeDialog, type Made } from './dialog.tsx';

/** Without an account: an operator who belongs to none. */
type OperatedUser = AnswerOf<'/api/operations/v1/users.json'>['users'][number];

type UserChange =
  | { readonly kind: 'add' }
  | { readonly kind: 'set' | 'secret' | 'remove'; readonly user: OperatedUser };

const pageSize = 50;

function AddFields() {
  const [isOperator, setOperator] = useState(false);
  return (
    <>
      <label class="field">
        <span>Name</span>
        <input name="name" required maxLength={100} autocomplete="off" />
      </label>
      <label class="check">
        <input
          type="checkbox"
          name="operator"
          value="1"
          checked={isOperator}
          onChange={() => setOperator(!isOperator)}
        />
        <span>Operator: sees this page, and changes apps and users of every account</span>
      </label>
      <label class="field">
        <span>{isOperator ? 'Account, or none' : 'Account'}</span>
        <input
          name="idAccount"
          inputMode="numeric"
          required={!isOperator}
          pattern="[1-9][0-9]{0,14}"
          autocomplete="off"
        />
      </label>
      <RightFields />
      <FilesField />
    </>
  );
}

function RightFields({ canExport = true }: { readonly canExport?: boolean }) {
  return (
    <label class="field">
      <span>Orders exports</span>
      <select name="canExport">
        <option value="1">yes</option>
        <option value="0" selected={!canExport}>
          no, reads what others of the account ordered
        </option>
      </select>
    </label>
  );
}

function FilesField({ files = 'auto' }: { readonly files?: OperatedUser['files'] }) {
  return (
    <label class="field">
      <span>Files</span>
      <select name="files">
        <option value="auto">as their size suits</option>
        <option value="gzip" selected={files === 'gzip'}>
          always compressed by gzip
        </option>
      </select>
    </label>
  );
}

function SetFields({ user: { idAccount, canExport, maxExports, files } }: { readonly user: OperatedUser }) {
  return (
    <>
      {idAccount !== undefined && <RightFields canExport={canExport} />}
      <label class="field">
        <span>Exports at once, or as many as the account</span>
        <input
          name="maxExports"
          inputMode="numeric"
          pattern="[1-9][0-9]{0,14}"
          autocomplete="off"
          defaultValue={maxExports ?? ''}
        />
      </label>
      <FilesField files={files} />
    </>
  );
}

function UserChangeDialog({
  asked,
  onDone,
  onClose,
}: {
  readonly asked: UserChange;
  readonly onDone: (made?: Made) => void;
  readonly onClose: () => void;
}) {
  async function make(method: 'add' | 'set' | 'secret' | 'remove', given: CallArguments): Promise<void> {
    const answer = await callApi(`/api/operations/v1/user/${method}.json`, { method: 'POST', given });
    if ('secret' in answer) onDone({ title: 'The secret', of: [['User id', answer.idUser]], value: answer.secret });
    else onDone();
  }
  if (asked.kind === 'add')
    return (
      <ChangeDialog title="Add a user" action="Add" onClose={onClose} onSubmit={(given) => make('add', given)}>
        <AddFields />
      </ChangeDialog>
    );
  const { idUser, name } = asked.user;
  if (asked.kind === 'set')
    return (
      <ChangeDialog
        title={`Change ${name} (${idUser})`}
        action="Change"
        onClose={onClose}
        onSubmit={({ maxExports = 'none', ...given }) => make('set', { idUser, maxExports, ...given })}
      >
        <SetFields user={asked.user} />
      </ChangeDialog>
    );
  if (asked.kind === 'secret')
    return (
      <ChangeDialog
        title={`A new secret for ${name} (${idUser})`}
        action="Make a new secret"
        isDangerous
        onClose={onClose}
        onSubmit={() => make('secret', { idUser })}
      >
        <p>The old one ends within a second, and with it the user's sessions and links.</p>
      </ChangeDialog>
    );
  return (
    <ChangeDialog
      title={`Remove ${name} (${idUser})`}
      action="Remove"
      isDangerous
      onClose={onClose}
      onSubmit={() => make('remove', { idUser })}
    >
      <p>
        Calls and links of the user end within a second, requests that wait or run are canceled. It cannot be undone.
      </p>
    </ChangeDialog>
  );
}

function UserRow({ user, onAsk }: { readonly user: OperatedUser; readonly onAsk: (asked: UserChange) => void }) {
  const { idUser, name, idAccount, canExport, maxExports, operator } = user;
  const isSelf = typeof session.value === 'object' && session.value.idUser === idUser;
  return (
    <li>
      <div class="item-head">
        <span class="item-title">{name}</span>
        <span class="muted small">
          User {idUser} · {idAccount === undefined ? 'no account' : `account ${idAccount}`}
          {maxExports !== undefined && ` · ${formatCount(maxExports)} exports at once`}
        </span>
      </div>
      <div class="row">
        {operator && <span class="badge busy">operator</span>}
        {idAccount !== undefined && !canExport && <span class="badge">orders no exports</span>}
        {isSelf && <span class="badge good">you</span>}
      </div>
      <div class="row item-actions">
        <button
          class="button small"
          type="button"
          aria-label={`New secret for user ${idUser}`}
          onClick={() => onAsk({ kind: 'secret', user })}
        >
          New secret
        </button>
        <button
          class="button small"
          type="button"
          aria-label={`Change user ${idUser}`}
          onClick={() => onAsk({ kind: 'set', user })}
        >
          Change
        </button>
        {!isSelf && (
          <button
            class="button small plain"
            type="button"
            aria-label={`Remove user ${idUser}`}
            onClick={() => onAsk({ kind: 'remove', user })}
          >
            Remove
          </button>
        )}
      </div>
    </li>
  );
}

/** The users of all accounts, and what changes them. */
export function UsersPart() {
  const [search, setSearch] = useState('');
  const [offset, setOffset] = useState(0);
  const [asked, setAsked] = useState<UserChange>();
  const [made, setMade] = useState<Made>();
  const kept = useKeptFocus();
  const { data, error, isLoading, reload } = useLoaded(
    (signal) =>
      callApi('/api/operations/v1/users.json', {
        given: { search, offset: String(offset), limit: String(pageSize) },
        signal,
      }),
    [search, offset],
  );
  function done(secret?: Made): void {
    setAsked(undefined);
    setMade(secret);
    reload();
  }
  return (
    <section {...kept} class="card stack" aria-labelledby="operated-users" aria-busy={isLoading}>
      <div class="spread">
        <h2 id="operated-users" tabIndex={-1}>
          Users <span class="muted">{data === undefined ? '' : formatCount(data.total)}</span>
        </h2>
        <div class="row">
          <SearchField
            label="Find a user by name or id"
            onSearch={(text) => {
              setSearch(text);
              setOffset(0);
            }}
          />
          <button class="button primary" type="button" onClick={() => setAsked({ kind: 'add' })}>
            Add a user
          </button>
        </div>
      </div>
      {error && <Message kind="error">{error.message}</Message>}
      {data === undefined && error === undefined && <p class="muted">Loading…</p>}
      {data?.total === 0 && !isLoading && <p class="muted">There is none.</p>}
      {data !== undefined && data.users.length > 0 && (
        <ul class="items">
          {data.users.map((user) => (
            <UserRow key={user.idUser} user={user} onAsk={setAsked} />
          ))}
        </ul>
      )}
      <Pager offset={offset} size={pageSize} total={data?.total ?? 0} onMove={setOffset} />
      {asked !== undefined && <UserChangeDialog asked={asked} onDone={done} onClose={() => setAsked(undefined)} />}
      {made !== undefined && <MadeDialog made={made} onClose={() => setMade(undefined)} />}
    </section>
  );
}
