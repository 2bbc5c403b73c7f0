import { useEffect, useState } from 'preact/hooks';

/** What is typed is taken so long after the last key, milliseconds. */
const settleMs = 200;

/** A field that says what to show of a list; `onSearch` is told when typing has settled. */
export function SearchField({
  label,
  onSearch,
}: {
  readonly label: string;
  readonly onSearch: (text: string) => void;
}) {
  const [text, setText] = useState('');
  useEffect(() => {
    const timer = setTimeout(() => onSearch(text.trim()), settleMs);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <label class="find-field">
      <span class="hidden">{label}</span>
      <input type="search" placeholder={label} value={text} onInput={(event) => setText(event.currentTarget.value)} />
    </label>
  );
}
