import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type CallArguments } from '../frame/client.ts';
import { session } from '../frame/session.ts';
import { Button, Check, Input, NumberInput, Select } from '../parts/controls.tsx';
import { formatCount } from '../parts/format.ts';
import { ChangeDialog, ManagedList, type AskedProps } from './managed-list.tsx';

/** Without an account: an operator who belongs to none. */
type OperatedUser = AnswerOf<'/api/operations/v1/users.json'>['users'][number];

type UserChange =
  | { readonly kind: 'add' }
  | { readonly kind: 'set' | 'secret' | 'remove'; readonly user: OperatedUser };

function AddFields() {
  const [isOperator, setOperator] = useState(false);
  return (
    <>
      <Input label="Name" name="name" required maxLength={100} autocomplete="off" />
      <Check
        label="Operator: sees this page, and changes apps and users of every account"
        name="operator"
        value="1"
        checked={isOperator}
        onChange={() => setOperator(!isOperator)}
      />
      <NumberInput label={isOperator ? 'Account, or none' : 'Account'} name="idAccount" required={!isOperator} />
      <RightFields />
      <FilesField />
    </>
  );
}

function RightFields({ canExport = true }: { readonly canExport?: boolean }) {
  return (
    <Select label="Orders exports" name="canExport">
      <option value="1">yes</option>
      <option value="0" selected={!canExport}>
        no, reads what others of the account ordered
      </option>
    </Select>
  );
}

function FilesField({ files = 'auto' }: { readonly files?: OperatedUser['files'] }) {
  return (
    <Select label="Files" name="files">
      <option value="auto">as their size suits</option>
      <option value="gzip" selected={files === 'gzip'}>
        always compressed by gzip
      </option>
    </Select>
  );
}

function SetFields({ user: { idAccount, canExport, maxExports, files } }: { readonly user: OperatedUser }) {
  return (
    <>
      {idAccount !== undefined && <RightFields canExport={canExport} />}
      <NumberInput
        label="Exports at once, or as many as the account"
        name="maxExports"
        defaultValue={maxExports ?? ''}
      />
      <FilesField files={files} />
    </>
  );
}

function UserChangeDialog({ asked, onDone, onClose }: AskedProps<UserChange>) {
  async function make(method: 'add' | 'set' | 'secret' | 'remove', given: CallArguments): Promise<void> {
    const answer = await callApi(`/api/operations/v1/user/${method}.json`, { method: 'POST', given });
    if ('secret' in answer) onDone({ title: 'The secret', id: ['User id', answer.idUser], value: answer.secret });
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

/** What is done with a user: what the button says, to whom sees the row and to whom hears it. */
const userActions = [
  { kind: 'secret', text: 'New secret', label: 'New secret for user' },
  { kind: 'set', text: 'Change', label: 'Change user' },
  { kind: 'remove', text: 'Remove', label: 'Remove user' },
] as const;

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
        {userActions
          .filter(({ kind }) => !(isSelf && kind === 'remove'))
          .map(({ kind, text, label }) => (
            <Button
              key={kind}
              kind={kind === 'remove' ? 'small plain' : 'small'}
              aria-label={`${label} ${idUser}`}
              onClick={() => onAsk({ kind, user })}
            >
              {text}
            </Button>
          ))}
      </div>
    </li>
  );
}

/** The users of all accounts, and what changes them. */
export function UsersPart() {
  return (
    <ManagedList
      id="operated-users"
      title="Users"
      find="Find a user by name or id"
      add="Add a user"
      nothing="There is none."
      load={async (given, signal) => {
        const { users, total } = await callApi('/api/operations/v1/users.json', { given, signal });
        return { rows: users, total };
      }}
      drawRow={(user, ask: (asked: UserChange) => void) => <UserRow key={user.idUser} user={user} onAsk={ask} />}
      dialog={UserChangeDialog}
    />
  );
}
