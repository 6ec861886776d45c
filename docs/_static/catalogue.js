// Filters the table of configs by selected values and by words; the hash of the address keeps the choice.
(() => {
  const table = document.getElementById('catalogue')
  if (!table) return
  const rows = [...table.tBodies[0].rows]
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent)
  const form = document.createElement('form')
  form.className = 'filter'
  const add = (title, element) => {
    const label = form.appendChild(document.createElement('label'))
    label.append(title, element)
    element.name = title
    return element
  }
  const selects = ['task', 'model', 'joining', 'data'].map((title) => {
    const column = titles.indexOf(title)
    const values = [...new Set(rows.map((row) => row.cells[column].textContent))].sort()
    const select = add(title, document.createElement('select'))
    for (const value of ['', ...values]) select.add(new Option(value || 'all', value))
    return [select, column]
  })
  const words = add('words', document.createElement('input'))
  words.type = 'search'
  const count = form.appendChild(document.createElement('output'))
  form.addEventListener('submit', (event) => event.preventDefault())
  form.addEventListener('input', () => {
    const wanted = words.value.toLowerCase().split(/\s+/)
    for (const row of rows) {
      const text = row.textContent.toLowerCase()
      row.hidden = !(
        selects.every(([select, column]) => !select.value || row.cells[column].textContent === select.value) &&
        wanted.every((word) => text.includes(word))
      )
    }
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`
    history.replaceState(null, '', '#' + new URLSearchParams([...new FormData(form)].filter(([, value]) => value)))
  })
  table.parentElement.before(form)
  const read = () => {
    const wanted = new URLSearchParams(location.hash.slice(1))
    for (const element of form.elements) {
      if (element.name) element.value = wanted.get(element.name) ?? ''
    }
    form.dispatchEvent(new Event('input'))
  }
  addEventListener('hashchange', read)
  read()
})()
