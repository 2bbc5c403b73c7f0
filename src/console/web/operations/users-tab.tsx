import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type CallArguments } from '../shell/client.ts';
import { session } from '../shell/session.ts';
import { Check, Input, NumberInput, Select } from '../components/controls.tsx';
import { formatCount } from '../components/format.ts';
import { ManagedList, type RowChange, type NewSecret, type Row, type RowAction } from './managed-list.tsx';

/** A user of any account; an operator may have none. */
type OperatedUser = AnswerOf<'/api/operations/v1/users.json'>['users'][number];

async function makeChange(
  method: 'add' | 'set' | 'secret' | 'remove',
  callArguments: CallArguments,
): Promise<NewSecret | undefined> {
  const answer = await callApi(`/api/operations/v1/user/${method}.json`, { method: 'POST', callArguments });
  return 'secret' in answer ? { title: 'New secret', id: ['User id', answer.idUser], value: answer.secret } : undefined;
}

function RightFields({ canExport = true }: { readonly canExport?: boolean }) {
  return (
    <Select label="Can create exports" name="canExport">
      <option value="1">yes</option>
      <option value="0" selected={!canExport}>
        no, only reads exports of the account
      </option>
    </Select>
  );
}

function FilesField({ files = 'auto' }: { readonly files?: OperatedUser['files'] }) {
  return (
    <Select label="Files" name="files">
      <option value="auto">compressed if large</option>
      <option value="gzip" selected={files === 'gzip'}>
        always gzip
      </option>
    </Select>
  );
}

function AddFields() {
  const [isOperator, setOperator] = useState(false);
  return (
    <>
      <Input label="Name" name="name" required maxLength={100} autocomplete="off" />
      <Check
        label="Operator: manages apps and users of all accounts"
        name="operator"
        value="1"
        checked={isOperator}
        onChange={() => setOperator(!isOperator)}
      />
      <NumberInput label={isOperator ? 'Account (optional)' : 'Account'} name="idAccount" required={!isOperator} />
      <RightFields />
      <FilesField />
    </>
  );
}

const addition: RowChange = {
  title: 'Add user',
  action: 'Add',
  content: <AddFields />,
  make: (fields) => makeChange('add', fields),
};

function listActions(user: OperatedUser, isSelf: boolean): readonly RowAction[] {
  const { idUser, idAccount, canExport, maxExports, files } = user;
  const name = `${user.name} (${idUser})`;
  const renewal: RowChange = {
    title: `Rotate the secret of ${name}`,
    action: 'Rotate secret',
    isDangerous: true,
    content: <p>The old secret stops working within a second, as do the user's sessions and links.</p>,
    make: () => makeChange('secret', { idUser }),
  };
  const setting: RowChange = {
    title: `Change ${name}`,
    action: 'Change',
    content: (
      <>
        {idAccount !== undefined && <RightFields canExport={canExport} />}
        <NumberInput
          label="Max concurrent exports (empty: account limit)"
          name="maxExports"
          defaultValue={maxExports ?? ''}
        />
        <FilesField files={files} />
      </>
    ),
    make: ({ maxExports: most = 'none', ...fields }) => makeChange('set', { idUser, maxExports: most, ...fields }),
  };
  const removal: RowChange = {
    title: `Remove ${name}`,
    action: 'Remove',
    isDangerous: true,
    content: (
      <p>
        The user's calls and links stop working within a second, and exports in progress are canceled. This cannot be
        undone.
      </p>
    ),
    make: () => makeChange('remove', { idUser }),
  };
  const actions: readonly RowAction[] = [
    ['Rotate secret', 'Rotate secret of user', renewal],
    ['Change', 'Change user', setting],
    ['Remove', 'Remove user', removal, 'plain'],
  ];
  return isSelf ? actions.slice(0, -1) : actions;
}

function toRow(user: OperatedUser): Row {
  const { idUser, name, idAccount, canExport, maxExports, operator } = user;
  const isSelf = typeof session.value === 'object' && session.value.idUser === idUser;
  const account = idAccount === undefined ? 'no account' : `account ${idAccount}`;
  const most = maxExports === undefined ? '' : ` · ${formatCount(maxExports)} concurrent exports`;
  return {
    id: idUser,
    title: name,
    about: `User ${idUser} · ${account}${most}`,
    content: () => (
      <div class="row">
        {operator && <span class="badge busy">operator</span>}
        {idAccount !== undefined && !canExport && <span class="badge">cannot create exports</span>}
        {isSelf && <span class="badge good">you</span>}
      </div>
    ),
    actions: listActions(user, isSelf),
  };
}

/** The users of all accounts. */
export function UsersTab() {
  return (
    <ManagedList
      id="operated-users"
      title="Users"
      find="Find a user by name or id"
      add={addition}
      nothing="No users found."
      load={async (callArguments, signal) => {
        const { users, total } = await callApi('/api/operations/v1/users.json', { callArguments, signal });
        return { rows: users.map(toRow), total };
      }}
    />
  );
}
